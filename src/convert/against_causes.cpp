// Faults of converters, tried one after the other: the first that turns what was expected into what the file holds is
// the cause.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/shown.h"
#include "convert/against.h"
#include "convert/rows.h"
#include "quant/encode/encoder.h"

namespace assay::converting {
namespace {

// How near a fault has to come: the rounding of a float type, or the error of a block format.
double near_enough(const gguf::Tensor& found) noexcept {
  switch (found.view.dtype) {
    case tensor::DType::F32: return 1e-6;
    case tensor::DType::F16: return 2e-3;
    case tensor::DType::BF16: return 1e-2;
    default: return 0.45;
  }
}

// Rows that the file's tensor has by what was expected: a slice list that says where each stands.
Output with_slices(const Output& expected, std::vector<Slice> slices) {
  Output other = expected;
  other.rope_heads = 0;
  other.slices = std::move(slices);
  return other;
}

// Row i of the result is row order(i) of what was expected.
template <class Order>
Output reordered(const Output& expected, Order order) {
  std::vector<Slice> slices;
  for (int64_t i = 0; i < expected.rows; ++i) {
    const Place place = place_of(expected, order(i));
    slices.push_back({.tensor = place.tensor,
                      .first = place.column >= 0 ? place.column : place.row,
                      .n_rows = 1,
                      .from_columns = place.column >= 0,
                      .block_row = place.row});
  }
  return with_slices(expected, std::move(slices));
}

class CauseSearch {
 public:
  CauseSearch(const TensorJudge& judge, const gguf::Tensor& found, const Output& expected, const Finding& finding,
              const Draft& draft)
      : judge_(judge), found_(found), expected_(expected), finding_(finding), draft_(draft), near_(near_enough(found)) {
  }

  std::string run() {
    if (expected_.slices.empty() || expected_.scales != nullptr) return {};
    std::string cause = by_rotation();
    if (cause.empty()) cause = by_one();
    if (cause.empty()) cause = by_state();
    if (cause.empty()) cause = by_other_tensor();
    if (cause.empty()) cause = by_order();
    if (cause.empty()) cause = by_turning();
    if (cause.empty()) cause = by_scale();
    if (cause.empty()) cause = by_rounding();
    if (cause.empty()) cause = by_end();
    return cause;
  }

 private:
  bool is(const Output& other) const { return judge_.distance_from(other) <= near_; }

  static constexpr int64_t kRowsMax = 1 << 20;  // of tensors whose rows are listed one by one

  std::string by_rotation() const {
    if (expected_.rope_heads > 0) {
      Output plain = expected_;
      plain.rope_heads = 0;
      if (is(plain))
        return fmt::format("its rows are not re-ordered: {} turns neighbours, the checkpoint halves of a head",
                           draft_.architecture());
      for (const int64_t heads : {draft_.n_heads, draft_.n_kv_heads}) {
        Output other = expected_;
        other.rope_heads = heads;
        if (heads != expected_.rope_heads && heads > 0 && expected_.rows % (2 * heads) == 0 && is(other))
          return fmt::format("its rows are re-ordered as for {} heads; it has {}", heads, expected_.rope_heads);
      }
      if (expected_.rows <= kRowsMax) {
        const int64_t width = expected_.rows / expected_.rope_heads;
        const auto again = [&](int64_t i) { return i / width * width + (i % width % 2) * (width / 2) + i % width / 2; };
        if (is(reordered(expected_, again))) return "its rows are re-ordered twice";
      }
      return {};
    }
    for (const int64_t heads : {draft_.n_heads, draft_.n_kv_heads}) {
      Output other = expected_;
      other.rope_heads = heads;
      if (heads > 0 && expected_.rows % (2 * heads) == 0 && is(other))
        return fmt::format("its rows are re-ordered head by head, which {} does not need: it turns halves",
                           draft_.architecture());
    }
    return {};
  }

  std::string by_one() const {
    Output other = expected_;
    other.plus_one = !expected_.plus_one;
    if (is(other)) {
      return expected_.plus_one
                 ? "the norm lacks the 1 that is added to it: the checkpoint's class multiplies by 1 + weight"
                 : "1 was added to it: the checkpoint's class multiplies by the weight alone";
    }
    return {};
  }

  // Of layers with a state: a decay as its logarithm, heads in the order of the checkpoint.
  std::string by_state() const {
    Output other = expected_;
    other.negative_exp = false;
    if (expected_.negative_exp && is(other))
      return "it holds what the checkpoint does, the logarithm of a decay; files have minus its exponential";
    other = expected_;
    other.columns = {};
    if (expected_.columns.n_groups > 0 && is(other))
      return fmt::format("its columns stand as in the checkpoint, by key head; {} has value heads in turns",
                         draft_.architecture());
    other = expected_;
    std::stable_sort(other.slices.begin(), other.slices.end(),
                     [](const Slice& a, const Slice& b) { return a.first < b.first; });
    const bool is_one = std::all_of(other.slices.begin(), other.slices.end(), [&](const Slice& slice) {
      return slice.tensor == other.slices.front().tensor && !slice.from_columns;
    });
    if (is_one && expected_.slices.size() > 1 && is(other))
      return fmt::format("its rows stand in the order of the checkpoint; {} has them sorted otherwise",
                         draft_.architecture());
    return {};
  }

  std::string by_other_tensor() const {
    for (const Output& other : draft_.outputs) {
      if (&other == &expected_ || other.shape.rank != expected_.shape.rank ||
          other.shape.dims != expected_.shape.dims || other.slices.empty() || other.scales != nullptr)
        continue;
      if (is(other)) return fmt::format("it holds the values of {}", other.name);
      if (other.rope_heads > 0) {
        Output plain = other;
        plain.rope_heads = 0;
        if (is(plain)) return fmt::format("it holds the values of {}, rows not re-ordered", other.name);
      }
    }
    return {};
  }

  std::string by_order() const {
    const int64_t rows = expected_.rows;
    if (rows < 2 || rows > kRowsMax) return {};
    if (rows % 2 == 0) {
      if (is(reordered(expected_, [](int64_t i) { return i ^ 1; }))) return "neighbouring rows are swapped in pairs";
      if (is(reordered(expected_, [rows](int64_t i) { return (i + rows / 2) % rows; })))
        return "its halves are swapped: gate and up, or whatever stands above and below";
      if (is(reordered(expected_, [rows](int64_t i) { return i % 2 * (rows / 2) + i / 2; })))
        return "rows of its two halves take turns";
      if (is(reordered(expected_, [rows](int64_t i) { return i < rows / 2 ? 2 * i : 2 * (i - rows / 2) + 1; })))
        return "rows that take turns were taken apart";
    }
    if (is(reordered(expected_, [rows](int64_t i) { return rows - 1 - i; }))) return "its rows stand in reverse";
    for (const int64_t heads : {draft_.n_heads, draft_.n_kv_heads}) {
      if (heads < 2 || rows % heads != 0) continue;
      const int64_t width = rows / heads;
      if (is(reordered(expected_, [&](int64_t i) { return i % heads * width + i / heads; })))
        return "rows of its heads take turns";
    }
    return {};
  }

  std::string by_turning() const {
    if (expected_.shape.rank != 2 || expected_.rows != expected_.cols || expected_.slices.size() != 1 ||
        expected_.slices[0].step != 1)
      return {};
    Slice slice = expected_.slices[0];
    slice.from_columns = !slice.from_columns;
    slice.block_row = slice.from_columns ? slice.first : 0;
    slice.first = 0;
    slice.n_rows = expected_.rows;
    if (is(with_slices(expected_, {slice}))) return "rows and columns have changed places";
    return {};
  }

  // One factor for all values.
  std::string by_scale() const {
    const int64_t cols = found_.view.shape.cols();
    if (expected_.cols != cols) return {};
    std::vector<float> x(static_cast<size_t>(cols)), y(x);
    double xy = 0, xx = 0, yy = 0;
    const int64_t n = std::min<int64_t>(64, expected_.rows);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = i * expected_.rows / n;
      read_row(expected_, row, x.data());
      decode_row(found_, row, y.data());
      for (size_t j = 0; j < x.size(); ++j) {
        xy += static_cast<double>(x[j]) * static_cast<double>(y[j]);
        xx += static_cast<double>(x[j]) * static_cast<double>(x[j]);
        yy += static_cast<double>(y[j]) * static_cast<double>(y[j]);
      }
    }
    if (!(xx > 0)) return {};
    if (!(yy > 0)) return "it holds zeros";
    const double factor = xy / xx, cosine = xy / std::sqrt(xx * yy);
    if (std::abs(cosine) > 1 - near_ * near_ && std::abs(factor - 1) > 2 * near_)
      return fmt::format("all its values are multiplied by {:.6g}", factor);
    return std::abs(cosine) < 0.1 && cols * n >= 256
               ? "its values have nothing to do with the folder's: it is of another model, or damaged throughout"
               : std::string();
  }

  // Through a coarser type on its way.
  std::string by_rounding() const {
    if (found_.view.dtype == tensor::DType::F32 && finding_.error < 5e-3)
      return "its values were rounded to 16 bits on their way";
    if (found_.view.dtype == tensor::DType::F16 && finding_.error < 5e-3)
      return "its values were rounded to BF16 on their way";
    if (found_.view.dtype == tensor::DType::BF16 && finding_.error < 5e-3)
      return "its values were rounded another way: cut, or by way of F16";
    return {};
  }

  std::string by_end() const {
    if (finding_.n_rows_wrong == 0) return {};
    const int64_t rows = found_.view.shape.rows();
    std::vector<float> y(static_cast<size_t>(found_.view.shape.cols()));
    bool zeros = true;
    for (const int64_t row : {finding_.first_row, finding_.last_row}) {
      decode_row(found_, row, y.data());
      zeros = zeros &&
              std::all_of(y.begin() + (row == finding_.first_row ? static_cast<std::ptrdiff_t>(finding_.column) : 0),
                          y.end(), [](float v) { return v == 0; });
    }
    const bool is_tail = finding_.last_row == rows - 1 && finding_.n_rows_wrong == rows - finding_.first_row;
    if (is_tail && zeros)
      return fmt::format("from row {} on it holds zeros: a shard or the file was cut there", finding_.first_row);
    if (is_tail && finding_.first_row > 0)
      return fmt::format("the rows before {} are right, all behind are not: a shard or a copy was cut there",
                         finding_.first_row);
    return {};
  }

  const TensorJudge& judge_;
  const gguf::Tensor& found_;
  const Output& expected_;
  const Finding& finding_;
  const Draft& draft_;
  double near_;
};

}  // namespace

std::string cause_of(const TensorJudge& judge, const gguf::Tensor& found, const Output& expected,
                     const Finding& finding, const Draft& draft) {
  return CauseSearch(judge, found, expected, finding, draft).run();
}

}  // namespace assay::converting
