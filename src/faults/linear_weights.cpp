// Known ways to multiply with the wrong matrix: another one of the file, or this one with its
// memory, rows or columns taken wrongly.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "faults/decode.h"
#include "faults/linear.h"
#include "faults/permute.h"
#include "ops/attention/attention.h"
#include "ops/embed/embed.h"
#include "ops/linear/linear.h"

namespace assay::faults::dictionary {
namespace {

const tensor::TensorView& matrix_of(const Case& c) { return c.view(c.record<ops::Linear>().w); }

// Memory [out][in] read as [in][out]: y[r] = sum_j F[j * out + r] x[j]. Of a square matrix that is
// its transpose.
SampleFunction transposed(const Case& c) {
  return [&c, right = right_linear(c)](const Sample& sample, double* y) {
    constexpr int64_t kColumnsPerTask = 256;
    const tensor::TensorView& view = matrix_of(c);
    const int64_t k = depth_of(c), n = static_cast<int64_t>(sample.columns.size());
    std::fill_n(y, static_cast<int64_t>(sample.rows.size()) * n, 0.0);
    c.pool.run((n + kColumnsPerTask - 1) / kColumnsPerTask, [&](int64_t task, int) {
      const int64_t begin = task * kColumnsPerTask, end = std::min(n, begin + kColumnsPerTask);
      const int64_t first = sample.columns[static_cast<size_t>(begin)];
      std::vector<double> w(static_cast<size_t>(sample.columns[static_cast<size_t>(end - 1)] - first + 1));
      const bool dense = static_cast<int64_t>(w.size()) <= 8 * (end - begin);
      for (int64_t j = 0; j < k; ++j) {
        const int64_t base = j * view.shape.rows();
        if (dense) weights_at(view, base + first, static_cast<int64_t>(w.size()), w.data());
        for (int64_t i = begin; i < end; ++i) {
          const int64_t r = sample.columns[static_cast<size_t>(i)];
          const double weight = dense ? w[static_cast<size_t>(r - first)] : weight_at(view, base + r);
          for (size_t s = 0; s < sample.rows.size(); ++s) {
            y[static_cast<int64_t>(s) * n + i] += weight * (*right.x)[static_cast<size_t>(sample.rows[s] * k + j)];
          }
        }
      }
      for (size_t s = 0; !right.bias.empty() && s < sample.rows.size(); ++s) {
        for (int64_t i = begin; i < end; ++i) {
          y[static_cast<int64_t>(s) * n + i] += right.bias[static_cast<size_t>(sample.columns[static_cast<size_t>(i)])];
        }
      }
    });
  };
}

void offer_layout(const Case& c, Sink& out) {
  const tensor::Shape& shape = matrix_of(c).shape;
  out.add(shape.rows() == shape.cols() ? "the square weight is transposed"
                                       : fmt::format("the weight's memory [{}][{}] is read as [{}][{}]", shape.rows(),
                                                     shape.cols(), shape.cols(), shape.rows()),
          transposed(c));
}

// row: index of the output -> index of the weight's row, or -1 for zeros
void offer_rows(const Case& c, Sink& out, std::string text, std::function<int64_t(int64_t)> row, bool bias_too) {
  LinearRule rule = right_linear(c);
  rule.row = [&c, row](int64_t r, double* w) {
    const int64_t from = row(r);
    if (from < 0 || from >= matrix_of(c).shape.rows()) {
      std::fill_n(w, depth_of(c), 0.0);
    } else {
      right_weight_row(matrix_of(c), from, w);
    }
  };
  if (bias_too && !rule.bias.empty()) {
    const std::vector<double> bias = rule.bias;
    for (size_t r = 0; r < bias.size(); ++r) rule.bias[r] = bias[static_cast<size_t>(row(static_cast<int64_t>(r)))];
  }
  out.add(std::move(text), linear_with(c, std::move(rule)));
}

// Query and key rows between the layouts of the two RoPE pairings, head by head, with the right
// number of heads and the wrong one.
void offer_permuted(const Case& c, Sink& out) {
  const ops::Attention* attention = c.attention();
  if (attention == nullptr) return;
  const int64_t n = c.failed.width;
  for (const int64_t n_heads : {attention->n_heads, attention->n_kv_heads}) {
    if (n % n_heads != 0 || n / n_heads % 2 != 0) continue;
    for (const bool to_neighbours : {true, false}) {
      const auto map = [=](int64_t r) { return permuted_row(r, n / n_heads, to_neighbours); };
      const char* how = to_neighbours ? "from halves to neighbours" : "from neighbours to halves";
      offer_rows(c, out,
                 fmt::format("rows are permuted {} of RoPE's pairs in {} heads, and should not be", how, n_heads), map,
                 true);
      if (right_linear(c).bias.empty()) continue;
      offer_rows(
          c, out,
          fmt::format("the weight's rows, not the bias, are permuted {} of RoPE's pairs in {} heads", how, n_heads),
          map, false);
    }
    if (attention->n_heads == attention->n_kv_heads) break;
  }
  const int64_t q = n / attention->n_heads, kv = n / attention->n_kv_heads;
  if (q == kv || n % attention->n_heads != 0 || q % 2 != 0 || kv % 2 != 0) return;
  for (const bool stored_q : {true, false}) {  // undone with one number of heads, done with the other
    offer_rows(
        c, out,
        fmt::format("rows are permuted for RoPE with {} heads where {} is right",
                    stored_q ? attention->n_heads : attention->n_kv_heads,
                    stored_q ? attention->n_kv_heads : attention->n_heads),
        [=](int64_t r) { return permuted_row(permuted_row(r, stored_q ? q : kv, true), stored_q ? kv : q, false); },
        true);
  }
}

void offer_offset(const Case& c, Sink& out) {
  const int64_t last = c.failed.width - 1;
  offer_rows(
      c, out, "every output takes the weight's next row", [last](int64_t r) { return std::min(r + 1, last); }, false);
  offer_rows(
      c, out, "every output takes the weight's row before its own",
      [](int64_t r) { return std::max<int64_t>(r - 1, 0); }, false);
}

void offer_row_stride(const Case& c, Sink& out) {
  const tensor::TensorView& view = matrix_of(c);
  const int64_t k = depth_of(c), per_block = tensor::traits(view.dtype).block_elements;
  if (per_block == 1) return;
  LinearRule rule = right_linear(c);
  rule.row = [&view, k, per_block, n = view.shape.elements()](int64_t r, double* w) {
    for (int64_t j = 0; j < k; ++j) {
      const int64_t at = r * k * per_block + j;
      w[j] = at < n ? weight_at(view, at) : 0.0;
    }
  };
  out.add(fmt::format("rows begin {} blocks apart, as if a block held one weight; it holds {}", k, per_block),
          linear_with(c, std::move(rule)));
}

void offer_tail_rows(const Case& c, Sink& out) {
  const int64_t n = c.failed.width;
  std::vector<int64_t> tried;
  for (const int64_t tile : {4, 8, 16, 32, 64, 128, 256}) {
    const int64_t kept = n / tile * tile;
    if (kept == n || kept == 0 || std::find(tried.begin(), tried.end(), kept) != tried.end()) continue;
    tried.push_back(kept);
    out.add_rows(
        fmt::format("outputs from {} of {} on are zero: rows beyond a multiple of {} are not computed", kept, n, tile),
        [&c, kept](int64_t row, double* y) {
          std::copy_n(c.right(row), kept, y);
          std::fill(y + kept, y + c.failed.width, 0.0);
        });
  }
}

// keep: whether column j counts
void offer_columns(const Case& c, Sink& out, std::string text, std::function<bool(int64_t)> keep) {
  LinearRule rule = right_linear(c);
  rule.row = [row = rule.row, k = depth_of(c), keep = std::move(keep)](int64_t r, double* w) {
    row(r, w);
    for (int64_t j = 0; j < k; ++j) w[j] = keep(j) ? w[j] : 0;
  };
  out.add(std::move(text), linear_with(c, std::move(rule)));
}

void offer_tail_columns(const Case& c, Sink& out) {
  const int64_t k = depth_of(c);
  const bool any_poison =
      std::any_of(c.failed.found.begin(), c.failed.found.end(), [](double x) { return !std::isfinite(x); });
  std::vector<int64_t> tried;
  for (const int64_t step : {8, 16, 32, 64, 128, 256, 512, 1024}) {
    const int64_t kept = k / step * step;
    if (kept == k || kept == 0 || std::find(tried.begin(), tried.end(), kept) != tried.end()) continue;
    tried.push_back(kept);
    if (any_poison && (tried.size() == 1 || step == 128)) {
      LinearRule rule = right_linear(c);
      rule.after = [](int64_t, int64_t, double) { return std::numeric_limits<double>::quiet_NaN(); };
      out.add(fmt::format("lanes behind input {} of {}, beyond a multiple of {}, hold what memory "
                          "held, which is no number",
                          kept, k, step),
              linear_with(c, std::move(rule)));
    }
    offer_columns(c, out,
                  fmt::format("inputs from {} of {} on are left out: the tail beyond a multiple of {}", kept, k, step),
                  [kept](int64_t j) { return j < kept; });
  }
}

void offer_half_blocks(const Case& c, Sink& out) {
  for (const int64_t block : {64, 128, 256}) {  // halves of 32: a fault of decoding
    if (depth_of(c) < block) continue;
    offer_columns(c, out, fmt::format("the upper half of each {} inputs is left out", block),
                  [block](int64_t j) { return j % block < block / 2; });
    offer_columns(c, out, fmt::format("the lower half of each {} inputs is left out", block),
                  [block](int64_t j) { return j % block >= block / 2; });
  }
  for (const int64_t lost : {0, 16, 32, 48}) {
    offer_columns(c, out,
                  fmt::format("inputs {} to {} of each 64 are left out: a scale covers half of each "
                              "of two blocks",
                              lost, lost + 15),
                  [lost](int64_t j) { return j % 64 < lost || j % 64 >= lost + 16; });
  }
  const int64_t k = depth_of(c);
  for (const int64_t block : {32, 256}) {
    if (k > block)
      offer_columns(c, out, fmt::format("the last block of {} inputs is left out", block),
                    [=](int64_t j) { return j < k - block; });
    if (k > block)
      offer_columns(c, out, fmt::format("the first block of {} inputs is left out", block),
                    [=](int64_t j) { return j >= block; });
  }
}

void offer_shards(const Case& c, Sink& out) {
  const int64_t k = depth_of(c), n = c.failed.width;
  for (const int64_t shards : {2, 4, 8}) {
    if (k % shards == 0) {
      offer_columns(c, out,
                    fmt::format("only the first 1/{} of the inputs is summed: partial sums of {} "
                                "devices are not added",
                                shards, shards),
                    [=](int64_t j) { return j < k / shards; });
    }
    if (n % shards != 0) continue;
    const int64_t part = n / shards;
    offer_rows(
        c, out, fmt::format("each of {} shards of outputs is the first one", shards),
        [part](int64_t r) { return r % part; }, true);
    offer_rows(
        c, out, fmt::format("the {} shards of outputs stand in reverse order", shards),
        [=](int64_t r) { return (shards - 1 - r / part) * part + r % part; }, true);
    offer_rows(
        c, out, fmt::format("only the first of {} shards of outputs is computed", shards),
        [part](int64_t r) { return r < part ? r : int64_t{-1}; }, false);
  }
}

std::string_view last_part(std::string_view op_name) {
  const size_t dot = op_name.rfind('.');
  return dot == std::string_view::npos ? op_name : op_name.substr(dot + 1);
}

// Every other matrix of the same shape that the plan multiplies with, or looks tokens up in.
void offer_other(const Case& c, Sink& out) {
  const auto& right = c.record<ops::Linear>();
  std::vector<ops::WeightId> tried = {right.w};
  const auto offer = [&](const char* id, const char* faults, ops::WeightId w) {
    if (std::find(tried.begin(), tried.end(), w) != tried.end() || !(c.view(w).shape == matrix_of(c).shape)) return;
    tried.push_back(w);
    LinearRule rule = right_linear(c);
    rule.row = [view = &c.view(w)](int64_t r, double* y) { right_weight_row(*view, r, y); };
    out.begin(id, faults);
    out.add(fmt::format("multiplied with {} in place of {}", c.weight_name(w), c.weight_name(right.w)),
            linear_with(c, std::move(rule)));
  };
  const auto offer_where = [&](auto&& wanted) {
    for (const ops::Op& other : c.plan.ops) {
      const auto* linear = other.as<ops::Linear>();
      if (linear != nullptr) wanted(other, linear->w);
    }
  };
  for (const ops::Op& other : c.plan.ops) {
    if (const auto* embed = other.as<ops::Embed>()) offer("tied_head", "C22,C23", embed->table);
  }
  offer_where([&](const ops::Op& other, ops::WeightId w) {
    if (other.layer == c.op().layer) offer("weights_swapped", "R16", w);
  });
  offer_where([&](const ops::Op& other, ops::WeightId w) {
    if (last_part(other.name) == last_part(c.op().name)) offer("weight_of_other_layer", "", w);
  });
  offer_where([&](const ops::Op&, ops::WeightId w) { offer("other_weight", "", w); });
}

constexpr Entry kEntries[] = {
    {"weight_layout", "R17,R19", offer_layout},  {"rows_permuted", "C19,C20", offer_permuted},
    {"other_weight", "", offer_other},           {"row_offset", "", offer_offset},
    {"row_stride", "C31", offer_row_stride},     {"tail_rows", "C18,C40", offer_tail_rows},
    {"tail_columns", "C34", offer_tail_columns}, {"half_blocks", "C32", offer_half_blocks},
    {"shards", "C18,C44", offer_shards},
};

}  // namespace

std::span<const Entry> linear_weight_entries() noexcept { return kEntries; }

}  // namespace assay::faults::dictionary
