// Uses all of a parsed GGUF file: every getter on every entry, the ends of every tensor. For fuzzing and mutation
// tests, where a wrong view shows up as a sanitizer's report.
#pragma once

#include <cstdint>
#include <string_view>

#include "assay/error.h"
#include "gguf/file.h"

namespace assay::test {

template <class Get>
uint64_t count_of(Get get) {  // 0 where the entry has another type, which is no failure
  try {
    const auto value = get();
    return value ? 1 : 0;
  } catch (const Error&) {
    return 0;
  }
}

inline uint64_t walk(const gguf::File& file) {
  uint64_t seen = 0;
  const gguf::Metadata& data = file.metadata();
  for (const gguf::Entry& entry : data.entries()) {
    const std::string_view key = entry.key;
    seen += count_of([&] { return data.find_unsigned(key); }) + count_of([&] { return data.find_integer(key); });
    seen += count_of([&] { return data.find_float(key); }) + count_of([&] { return data.find_bool(key); });
    seen += count_of([&] { return data.find_string(key); }) + count_of([&] { return data.find_integers(key); });
    seen += count_of([&] { return data.find_floats(key); }) + count_of([&] { return data.find_bools(key); });
    seen += count_of([&] {
      const auto texts = data.find_strings(key);
      if (texts) {
        for (std::string_view text : *texts)
          seen += text.empty() ? 0 : static_cast<unsigned char>(text.front()) + static_cast<unsigned char>(text.back());
      }
      return texts;
    });
  }
  for (const gguf::Tensor& tensor : file.tensors()) {
    seen += std::to_integer<uint64_t>(tensor.view.data.front()) + std::to_integer<uint64_t>(tensor.view.data.back());
    seen += std::to_integer<uint64_t>(*tensor.view.row(tensor.view.shape.rows() - 1));
    seen += file.find(tensor.name) == nullptr ? 0 : 1;
  }
  return seen;
}

}  // namespace assay::test
