// Known ways to give a matrix product the wrong input, and to read the wrong part of a fused matrix.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "faults/decode.h"
#include "faults/linear.h"
#include "ops/linear/linear.h"
#include "ops/plan/float64.h"
#include "ops/plan/op_values.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/rms_norm.h"

namespace assay::faults::dictionary {
namespace {

const tensor::TensorView& matrix_of(const Case& c) { return c.view(c.record<ops::Linear>().w); }

void offer_input(const Case& c, Sink& out, std::string text,
                 const std::function<void(std::span<const double> x, std::span<double> y)>& change) {
  auto changed = std::make_shared<std::vector<double>>(c.failed.a.size());
  const auto k = static_cast<size_t>(depth_of(c));
  for (size_t begin = 0; begin + k <= changed->size(); begin += k)
    change(std::span(c.failed.a).subspan(begin, k), std::span(*changed).subspan(begin, k));
  LinearRule rule = right_linear(c);
  rule.x = changed;
  out.add(std::move(text), linear_with(c, std::move(rule)));
}

// A norm of the layer, or without one, that belongs after the branch or not here at all.
void offer_normed(const Case& c, Sink& out) {
  const ops::ValueId x = c.record<ops::Linear>().x;
  for (const ops::Op& other : c.plan.ops) {
    const auto* norm = other.as<ops::RmsNorm>();
    if (norm == nullptr || other.layer != c.op().layer || norm->d != depth_of(c) || norm->y == x) continue;
    const std::vector<double> w = norm->w == ops::kNone ? std::vector<double>() : c.vector(norm->w);
    offer_input(
        c, out,
        fmt::format(
            "the input is normed by {} first: the norm stands before this product, where the model has it elsewhere",
            other.name),
        [&](std::span<const double> from, std::span<double> to) {
          ops::rms_norm64(from, w, static_cast<double>(norm->eps), to);
        });
  }
  const ops::Op* writer = c.writer(x);
  const auto* norm = writer == nullptr ? nullptr : writer->as<ops::RmsNorm>();
  if (norm == nullptr || norm->d != depth_of(c)) return;
  const std::vector<double> w = norm->w == ops::kNone ? std::vector<double>() : c.vector(norm->w);
  offer_input(c, out, fmt::format("{} is applied twice", writer->name),
              [&](std::span<const double> from, std::span<double> to) {
                ops::rms_norm64(from, w, static_cast<double>(norm->eps), to);
              });
}

// The products of the same input whose rows follow one another in memory: parts of one fused matrix. In the order of
// memory.
struct Part {
  const std::byte* data;
  int64_t n_rows;
  bool is_own;
};
std::vector<Part> fused_parts(const Case& c) {
  const auto& own = c.record<ops::Linear>();
  const tensor::TensorView& view = matrix_of(c);
  std::vector<Part> all;
  for (const ops::Op& other : c.plan.ops) {
    const auto* linear = other.as<ops::Linear>();
    if (linear == nullptr || linear->x != own.x || other.layer != c.op().layer ||
        c.plan.weights[static_cast<size_t>(linear->w)].stride != 0)
      continue;
    const tensor::TensorView& of = c.view(linear->w);
    if (of.dtype == view.dtype && of.shape.cols() == view.shape.cols())
      all.push_back({of.data.data(), of.shape.rows(), linear->w == own.w});
  }
  std::sort(all.begin(), all.end(), [](const Part& a, const Part& b) { return a.data < b.data; });
  // The run without gaps that holds this op's own rows.
  std::vector<Part> run;
  for (const Part& part : all) {
    const bool follows = !run.empty() && part.data == run.back().data + run.back().n_rows * view.row_bytes();
    const bool has_own = std::any_of(run.begin(), run.end(), [](const Part& p) { return p.is_own; });
    if (!follows && has_own) break;
    if (!follows) run.clear();
    run.push_back(part);
  }
  return run.size() < 2 ? std::vector<Part>() : run;
}

void offer_fused(const Case& c, Sink& out) {
  const std::vector<Part> parts = fused_parts(c);
  if (parts.empty() || parts.size() > 4) return;
  const tensor::TensorView& view = matrix_of(c);
  int64_t total = 0, own_first = 0;
  size_t own = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].is_own) own = i, own_first = total;
    total += parts[i].n_rows;
  }
  tensor::TensorView whole = view;
  whole.data = {parts[0].data, static_cast<size_t>(total * view.row_bytes())};
  whole.shape = {{total, view.shape.cols(), 1, 1}, 2};
  const auto with = [&](std::string text, std::function<int64_t(int64_t)> row) {
    LinearRule rule = right_linear(c);
    rule.row = [whole, row, total](int64_t r, double* w) {
      right_weight_row(whole, std::clamp<int64_t>(row(r), 0, total - 1), w);
    };
    out.add(std::move(text), linear_with(c, std::move(rule)));
  };
  std::vector<size_t> order(parts.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::vector<int64_t> tried = {own_first};
  do {
    int64_t first = 0;
    for (const size_t i : order) {
      if (i == own) break;
      first += parts[i].n_rows;
    }
    if (std::find(tried.begin(), tried.end(), first) != tried.end()) continue;
    tried.push_back(first);
    with(fmt::format("rows from {} of the fused matrix on are read, where this part begins at {}: the parts are split "
                     "in the wrong order",
                     first, own_first),
         [first](int64_t r) { return first + r; });
  } while (std::next_permutation(order.begin(), order.end()));
  const auto n = static_cast<int64_t>(parts.size());
  const bool equal =
      std::all_of(parts.begin(), parts.end(), [&](const Part& p) { return p.n_rows == parts[0].n_rows; });
  const ops::Attention* attention = c.attention();
  if (!equal) return;
  with("rows of the fused matrix are taken by turns; its parts are blocks",
       [n, own](int64_t r) { return r * n + static_cast<int64_t>(own); });
  if (attention == nullptr || parts[0].n_rows % attention->head_dim != 0) return;
  with("the fused matrix is split head by head (all parts of the first head first); its parts are blocks",
       [n, own, d = attention->head_dim](int64_t r) { return r / d * n * d + static_cast<int64_t>(own) * d + r % d; });
}

constexpr Entry kEntries[] = {{"norm_place", "", offer_normed}, {"fused_split", "", offer_fused}};

}  // namespace

std::span<const Entry> linear_input_entries() noexcept { return kEntries; }

}  // namespace assay::faults::dictionary
