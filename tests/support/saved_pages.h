// For tests: pages of a folder of saved prompts, waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <thread>

#include "pages/prompt_folder.h"

namespace assay::test {

// Until the reading is over: each page's image in its order.
inline void take_all_pages(pages::PromptFolder& folder, int reading,
                           const std::function<void(std::span<const std::byte> image)>& sink) {
  while (!folder.is_over(reading)) {
    if (const std::optional<base::AlignedBuffer> image = folder.take_page(reading)) {
      sink(image->bytes());
    } else {
      std::this_thread::yield();
    }
  }
  folder.end_read(reading);
}

inline void read_saved(pages::PromptFolder& folder, std::string_view salt, std::span<const TokenId> tokens,
                       int64_t i_first, const std::function<void(std::span<const std::byte> image)>& sink) {
  take_all_pages(folder, folder.begin_read(salt, tokens, i_first), sink);
}

}  // namespace assay::test
