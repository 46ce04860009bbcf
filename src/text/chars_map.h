// The rules by which SentencePiece normalises text before it is cut (tokenizer.ggml.precompiled_charsmap): runs of
// bytes and the texts that take their place, the longest run first. A double array of 32-bit units, as Darts-clone
// writes it, followed by the texts, each with a zero behind it. Source: normalizer.cc of
// github.com/google/sentencepiece and darts.h of github.com/s-yata/darts-clone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace assay::text {

class CharsMap {
 public:
  static constexpr size_t kBytesMax = size_t{1} << 24;
  static constexpr size_t kUnitsMax = size_t{1} << 20;
  static constexpr size_t kRunBytesMax = 1024;  // of a run that is replaced

  CharsMap() = default;  // no rules
  // Takes a copy; empty bytes are no rules. Throws Error(bad_file) for bytes that are no such rules, and where the
  // array's paths run in circles or out of it: afterwards a look-up reads at most as many bytes as the longest run has.
  explicit CharsMap(std::span<const std::byte> bytes);

  struct Match {
    size_t bytes = 0;       // 0: no run begins here
    std::string_view text;  // in its place; as long as the map lives
  };
  Match longest(std::string_view text) const noexcept;  // of the runs with which the text begins

 private:
  void check() const;
  uint32_t child(uint32_t base, uint8_t byte) const noexcept;
  std::string_view text_of(uint32_t base) const noexcept;
  void check_end(uint32_t unit, uint32_t base) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace assay::text
