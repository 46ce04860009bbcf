// The distributions of a model at the scored tokens, and how far others are from them. With a and b the logits, p =
// softmax(a) and d = b - a:
//   KL divergence = log(sum p exp(d)) - sum p d
// in double: equal logits have none at all, and small differences are not lost between large numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace assay::kld {

class BaseRows {
 public:
  BaseRows(int64_t n_rows, int64_t width);
  int64_t n_rows() const noexcept { return static_cast<int64_t>(log_sums_.size()); }

  // Rows may be set and asked for by several threads. False: a logit is no number and not minus infinity, or none is
  // finite.
  bool set(int64_t row, std::span<const float> logits) noexcept;
  // 0 or more; infinite where the logits rule out what the base allows, NaN where they are no numbers.
  double divergence(int64_t row, std::span<const float> logits) const noexcept;

 private:
  int64_t width_;
  std::vector<float> logits_;  // [n_rows, width]
  std::vector<double> log_sums_;
};

}  // namespace assay::kld
