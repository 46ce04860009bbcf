// Any bytes as a saved prompt's file: either an Error, or a head whose sizes agree. A second time with a checksum that
// fits.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "assay/error.h"
#include "pages/page_tables.h"
#include "pages/prompt_file.h"
#include "target.h"

namespace {

using assay::fuzz::require;

void read_prompt(std::span<const std::byte> bytes) {
  using namespace assay::pages;
  try {
    const uint64_t size = head_size(bytes, bytes.size());
    require(size <= bytes.size());
    const PromptHead head = parse_head(bytes, bytes.size());
    require(head.tokens.size() == head.n_pages() * kPagePositions);
    uint64_t end = size;
    for (size_t i = 0; i < head.n_pages(); ++i) end += head.image_bytes(i);
    require(end == bytes.size());
    require(head_bytes(head).size() == size);
  } catch (const assay::Error&) {
    return;  // the answer to most inputs
  }
}

}  // namespace

ASSAY_FUZZ_TARGET(prompt_file) {
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  read_prompt(bytes);
  try {
    const uint64_t head = assay::pages::head_size(bytes, bytes.size());
    const uint64_t checksum =
        assay::pages::checksum_of(std::span(bytes).first(static_cast<size_t>(head - sizeof(uint64_t))));
    std::memcpy(bytes.data() + head - sizeof checksum, &checksum, sizeof checksum);
  } catch (const assay::Error&) {
    return 0;
  }
  read_prompt(bytes);
  return 0;
}
