// The distributions of a model at the scored tokens, and how far others are from them.
//   KL divergence = sum p a - sum p b + (sum p) (log_sum_exp(b) - log_sum_exp(a)),  p = softmax(a), a and b the logits
// p is rounded to f32 and kept; all sums are in double over the same p, so that equal logits have none at all and the rounding of p is no error but a
// distribution a hair's breadth away.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace assay::kld {

class BaseRows {
 public:
  BaseRows(int64_t n_rows, int64_t width);
  int64_t n_rows() const noexcept { return static_cast<int64_t>(facts_.size()); }
  int64_t width() const noexcept { return width_; }

  // Rows may be set and asked for by several threads, each with its own scratch of `width`. False: a logit is no finite number or minus infinity.
  bool set(int64_t row, std::span<const float> logits, std::span<double> scratch) noexcept;
  // 0 or more; infinite where the base allows what the logits rule out, NaN where they are no numbers.
  double divergence(int64_t row, std::span<const float> logits, std::span<double> scratch) const noexcept;

 private:
  struct Facts {
    double log_sum_exp = 0, p_sum = 0, p_logits = 0;
  };

  int64_t width_;
  std::vector<float> p_;  // [n_rows, width]
  std::vector<Facts> facts_;
};

}  // namespace assay::kld
