// Faults that any op may have: its output lies wrongly, belongs to another token, is scaled,
// rounded or never written. They need no formula of the op, only its right values.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "faults/table.h"
#include "ops/attention/attention.h"

namespace assay::faults::dictionary {
namespace {

void offer_zero(const Case& c, Sink& out) {
  out.add_rows("the output is zero: never written",
               [&c](int64_t, double* y) { std::fill(y, y + c.failed.width, 0.0); });
}

void offer_not_done(const Case& c, Sink& out) {
  const FailedOp& f = c.failed;
  if (f.a_width == f.width) {
    out.add_rows("the op is not done: its input is passed on",
                 [&c](int64_t row, double* y) { std::copy_n(c.a(row), c.failed.width, y); });
  }
}

// map: row of the output -> row whose values stand there
void offer_rows(const Case& c, Sink& out, std::string text, int64_t (*map)(int64_t row, int64_t n)) {
  out.add_rows(std::move(text), [&c, map](int64_t row, double* y) {
    std::copy_n(c.right(std::clamp<int64_t>(map(row, c.failed.n_rows), 0, c.failed.n_rows - 1)), c.failed.width, y);
  });
}

void offer_other_token(const Case& c, Sink& out) {
  if (c.failed.n_rows < 2) return;
  offer_rows(c, out, "every row holds the values of the token before it", [](int64_t row, int64_t) { return row - 1; });
  offer_rows(c, out, "every row holds the values of the token after it", [](int64_t row, int64_t) { return row + 1; });
  offer_rows(c, out, "every row holds the values of the first token", [](int64_t, int64_t) { return int64_t{0}; });
  offer_rows(c, out, "every row holds the values of the last token", [](int64_t, int64_t n) { return n - 1; });
  offer_rows(c, out, "the rows stand in reverse order", [](int64_t row, int64_t n) { return n - 1 - row; });
}

// memory holds the right values in another order: [rows][width] at flat index -> flat index of the
// right value
void offer_layout(const Case& c, Sink& out) {
  const FailedOp& f = c.failed;
  if (f.n_rows > 1) {
    out.add_rows("the output lies as [width][tokens] in place of [tokens][width]", [&c](int64_t row, double* y) {
      const int64_t n = c.failed.n_rows, width = c.failed.width;
      for (int64_t j = 0; j < width; ++j) {
        const int64_t flat = row * width + j;
        y[j] = c.right(flat % n)[flat / n];
      }
    });
  }
  const ops::Attention* attention = c.attention();
  if (attention == nullptr || f.width % attention->head_dim != 0 || f.width == attention->head_dim) return;
  const int64_t d = attention->head_dim, n_heads = f.width / d;
  out.add_rows(fmt::format("the output lies as [{}][{}] (elements of a head first) in place of [{}][{}]", d, n_heads,
                           n_heads, d),
               [&c, d, n_heads](int64_t row, double* y) {
                 for (int64_t i = 0; i < c.failed.width; ++i) y[i] = c.right(row)[i % n_heads * d + i / n_heads];
               });
  out.add_rows("the heads stand in reverse order", [&c, d, n_heads](int64_t row, double* y) {
    for (int64_t h = 0; h < n_heads; ++h) std::copy_n(c.right(row) + (n_heads - 1 - h) * d, d, y + h * d);
  });
  out.add_rows("every head holds the values of the first", [&c, d, n_heads](int64_t row, double* y) {
    for (int64_t h = 0; h < n_heads; ++h) std::copy_n(c.right(row), d, y + h * d);
  });
  out.add_rows("only the first head is written", [&c, d](int64_t row, double* y) {
    std::fill(y, y + c.failed.width, 0.0);
    std::copy_n(c.right(row), d, y);
  });
}

void offer_shift(const Case& c, Sink& out) {
  for (const int64_t by : {1, -1}) {
    out.add_rows(fmt::format("the output is shifted by {} element{}", by, by > 0 ? "" : " (to the left)"),
                 [&c, by](int64_t row, double* y) {
                   const int64_t width = c.failed.width;
                   for (int64_t j = 0; j < width; ++j) y[j] = c.right(row)[std::clamp<int64_t>(j - by, 0, width - 1)];
                 });
  }
}

void offer_rounded(const Case& c, Sink& out) {
  for (const bool half : {true, false}) {
    out.add_rows(fmt::format("the output is rounded to {}, which was not declared",
                             half ? "f16 (infinite above 65504)" : "bf16"),
                 [&c, half](int64_t row, double* y) {
                   std::transform(c.right(row), c.right(row) + c.failed.width, y, half ? as_f16 : as_bf16);
                 });
  }
}

// The factor that fits best, if one fits: dimensions, their roots and the like are named.
void offer_factor(const Case& c, Sink& out) {
  const FailedOp& f = c.failed;
  const std::span<const double> right = sharpest(f).y;
  double products = 0, squares = 0;
  for (size_t i = 0; i < f.found.size(); ++i) {
    if (!std::isfinite(f.found[i]) || !std::isfinite(right[i])) continue;
    products += f.found[i] * right[i];
    squares += right[i] * right[i];
  }
  if (squares == 0 || products == 0 || !std::isfinite(products / squares)) return;
  const double factor = products / squares;
  out.add_rows(fmt::format("every value is {:.6g} times the right one: a scale is missing, or applied twice", factor),
               [&c, factor](int64_t row, double* y) {
                 std::transform(c.right(row), c.right(row) + c.failed.width, y,
                                [factor](double x) { return factor * x; });
               });
}

constexpr Entry kEntries[] = {
    {"not_done", "", offer_not_done},    {"zero", "", offer_zero},     {"other_token", "", offer_other_token},
    {"layout", "R17,R19", offer_layout}, {"shifted", "", offer_shift}, {"factor", "", offer_factor},
    {"rounded", "C38", offer_rounded},
};

}  // namespace

std::span<const Entry> any_entries() noexcept { return kEntries; }

}  // namespace assay::faults::dictionary
