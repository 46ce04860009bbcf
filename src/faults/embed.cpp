// Known ways to look a token's embedding up wrongly.
#include "ops/embed/embed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "faults/decode.h"
#include "faults/table.h"

namespace assay::faults::dictionary {
namespace {

const tensor::TensorView& table_of(const Case& c) { return c.view(c.record<ops::Embed>().table); }

// map: row of the output -> row of the table
template <class Map>
RowFunction embed_row(const Case& c, Map map) {
  return [&c, map](int64_t row, double* y) {
    const tensor::TensorView& table = table_of(c);
    right_weight_row(table, std::clamp<int64_t>(map(row), 0, table.shape.rows() - 1), y);
    for (int64_t j = 0; j < c.failed.width; ++j) y[j] *= c.record<ops::Embed>().scale;
  };
}

auto token_of(const Case& c) {
  return [&c](int64_t row) { return static_cast<int64_t>(c.failed.tokens[static_cast<size_t>(row)]); };
}

void offer_row(const Case& c, Sink& out) {
  const auto token = token_of(c);
  out.add_rows("the row after the token's own is read", embed_row(c, [=](int64_t row) { return token(row) + 1; }));
  out.add_rows("the row before the token's own is read", embed_row(c, [=](int64_t row) { return token(row) - 1; }));
  out.add_rows("row 0 is read for every token", embed_row(c, [](int64_t) { return int64_t{0}; }));
  out.add_rows("the row of the token's position is read, not of its id",
               embed_row(c, [&c](int64_t row) { return c.position(row); }));
}

// Ids from some number on are one row, the last of a vocabulary that was assumed. The number lies
// behind the largest id whose row is right and at most at the smallest whose row is wrong.
void offer_vocabulary(const Case& c, Sink& out) {
  const FailedOp& f = c.failed;
  int64_t largest_right = -1, smallest_wrong = table_of(c).shape.rows();
  for (int64_t row = 0; row < f.n_rows; ++row) {
    const int64_t token = f.tokens[static_cast<size_t>(row)];
    bool wrong = false;
    for (int64_t j = row * f.width; j < (row + 1) * f.width; ++j) {
      const auto i = static_cast<size_t>(j);
      wrong = wrong || !(std::abs(f.found[i] - f.expected.y[i]) <= f.expected.bound[i]);
    }
    if (wrong) smallest_wrong = std::min(smallest_wrong, token);
    if (!wrong) largest_right = std::max(largest_right, token);
  }
  if (smallest_wrong <= largest_right + 1) return;
  const auto with = [&](int64_t size) {
    out.add_rows(fmt::format("ids from {} on read its last row: the vocabulary is taken for {} "
                             "tokens, it has {}",
                             size, size, table_of(c).shape.rows()),
                 embed_row(c, [token = token_of(c), size](int64_t row) { return std::min(token(row), size - 1); }));
  };
  constexpr int64_t kSizesMax = 64;
  const int64_t step = smallest_wrong - largest_right <= kSizesMax ? 1 : 64;
  for (int64_t size = std::max<int64_t>(1, largest_right + 1), n = 0; size <= smallest_wrong && n < kSizesMax;
       size = (size / step + 1) * step, ++n) {
    with(size);
  }
}

void offer_column(const Case& c, Sink& out) {
  out.add_rows(
      "the table's memory is read as [d_model][vocabulary]: a column in place of a row", [&c](int64_t row, double* y) {
        const tensor::TensorView& table = table_of(c);
        const int64_t token = std::clamp<int64_t>(c.failed.tokens[static_cast<size_t>(row)], 0, table.shape.rows() - 1);
        for (int64_t j = 0; j < c.failed.width; ++j)
          y[j] = weight_at(table, j * table.shape.rows() + token) * c.record<ops::Embed>().scale;
      });
}

void offer_scale(const Case& c, Sink& out) {
  const double right = c.record<ops::Embed>().scale, d = static_cast<double>(c.failed.width);
  const auto with = [&](std::string text, double scale) {
    if (scale == right) return;
    out.add_rows(std::move(text), [&c, factor = scale / right](int64_t row, double* y) {
      std::transform(c.right(row), c.right(row) + c.failed.width, y, [factor](double x) { return factor * x; });
    });
  };
  if (right != 1) {
    with(fmt::format("the embedding's scale {:.6g} is missing", right), 1);
    with(fmt::format("the embedding's scale {:.6g} is applied twice", right), right * right);
    with(fmt::format("embeddings are divided by {:.6g}; they are multiplied by it", right), 1 / right);
    with(fmt::format("the embedding's scale is rounded to bf16: {:.6g} in place of {:.6g}", as_bf16(right), right),
         as_bf16(right));
    with(fmt::format("the embedding's scale is rounded to f16: {:.6g} in place of {:.6g}", as_f16(right), right),
         as_f16(right));
  }
  with(fmt::format("embeddings are scaled by the root of d_model, {:.6g}, in place of {:.6g}", std::sqrt(d), right),
       std::sqrt(d));
  with(fmt::format("embeddings are scaled by d_model, {:g}, in place of {:.6g}", d, right), d);
}

void offer_decode(const Case& c, Sink& out) {
  for (const DecodeFault& fault : decode_faults()) {
    if (!fault.applies(table_of(c).dtype)) continue;
    out.begin(fault.id, fault.faults);
    out.add_rows(decode_text(fault, table_of(c).dtype), [&c, &fault](int64_t row, double* y) {
      const tensor::TensorView& table = table_of(c);
      const int64_t token = std::clamp<int64_t>(c.failed.tokens[static_cast<size_t>(row)], 0, table.shape.rows() - 1);
      wrong_weight_row(fault, table, token, y);
      for (int64_t j = 0; j < c.failed.width; ++j) y[j] *= c.record<ops::Embed>().scale;
    });
  }
}

constexpr Entry kEntries[] = {
    {"embed_row", "", offer_row},
    {"embed_column", "R10", offer_column},
    {"embed_vocabulary", "R20", offer_vocabulary},
    {"embed_scale", "", offer_scale},
    {"decode", "", offer_decode},
};

}  // namespace

std::span<const Entry> embed_entries() noexcept { return kEntries; }

}  // namespace assay::faults::dictionary
