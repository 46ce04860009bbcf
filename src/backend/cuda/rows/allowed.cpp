// See allowed.h.
#include "backend/cuda/rows/allowed.h"

#include <algorithm>
#include <cstring>

namespace assay::backend::cuda {

// A row's words of 64 bits are as many of 32 twice: both count bits from the lowest byte on.
bool AllowedRows::set(std::span<const ops::AllowedTokens> outputs, int64_t n_outputs_max, int64_t vocab_size) {
  n_words_ = static_cast<int32_t>((vocab_size + 31) / 32);
  const size_t row_bytes = static_cast<size_t>(n_words_) * sizeof(uint32_t);
  bool is_other = false;
  if (places_.size() == 0) {
    places_ = PinnedBuffer(static_cast<size_t>(n_outputs_max) * sizeof(int32_t), "which outputs have masks");
    is_other = true;
  }
  if (outputs.size() * row_bytes > words_.size()) {
    const size_t n_rows =
        std::min(std::max(outputs.size(), 2 * words_.size() / row_bytes), static_cast<size_t>(n_outputs_max));
    words_ = PinnedBuffer(n_rows * row_bytes, "the masks of outputs");
    is_other = true;
  }
  std::fill_n(places_.as<int32_t>(), n_outputs_max, ops::kNone);
  for (size_t i = 0; i < outputs.size(); ++i) {
    places_.as<int32_t>()[outputs[i].i_output] = static_cast<int32_t>(i);
    std::memcpy(words_.data() + i * row_bytes, outputs[i].words.data(), row_bytes);
  }
  is_empty_ = outputs.empty();
  return is_other;
}

AllowedWords AllowedRows::words() const noexcept {
  if (is_empty_) return {};
  return {places_.as<const int32_t>(), words_.as<const uint32_t>(), n_words_};
}

}  // namespace assay::backend::cuda
