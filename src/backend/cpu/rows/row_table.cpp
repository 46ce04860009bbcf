// See row_table.h.
#include "backend/cpu/rows/row_table.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "backend/cpu/runtime/run_state.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/linear/expert_sum.h"
#include "ops/rows/activate.h"
#include "ops/rows/add.h"
#include "ops/rows/clamped_gate.h"
#include "ops/rows/gate.h"
#include "ops/rows/join.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/select_outputs.h"
#include "ops/rows/slice.h"
#include "ops/rows/softcap.h"

namespace assay::backend::cpu {
namespace {

void borrow(const RunState& s, const ops::Op& op, int64_t begin, int64_t end, std::byte*) noexcept {
  op.record.run(s.host_rows, begin, end);
}

// Of each value of an op the same element of a piece.
template <size_t n_values>
using Pieces = std::array<float*, n_values>;

// Rows [begin, end) of values of one width, element by element: in one go where all of them follow one another, else
// piece by piece. each(pieces, n)
template <size_t n_values, class Each>
void by_pieces(const RunState& s, const std::array<ops::ValueId, n_values>& ids, int64_t begin, int64_t end,
               const Each& each) noexcept {
  const int64_t width = s.width(ids[0]);
  const auto pieces_at = [&](int64_t t, int64_t first) {
    Pieces<n_values> pieces;
    for (size_t i = 0; i < n_values; ++i) pieces[i] = s.column(ids[i], t, first);
    return pieces;
  };
  const bool is_dense = std::ranges::all_of(ids, [&](ops::ValueId id) { return s.layout(id).is_dense(width); });
  if (is_dense) return each(pieces_at(begin, 0), (end - begin) * width);
  int64_t piece = width;
  for (const ops::ValueId id : ids) piece = s.layout(id).is_whole() ? piece : std::gcd(piece, s.layout(id).run);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t first = 0; first < width; first += piece) each(pieces_at(t, first), piece);
  }
}

// n columns of row i of x, from `from` on, to row k of y.
void copy_columns(const RunState& s, ops::ValueId x, int64_t i, int64_t from, ops::ValueId y, int64_t k, int64_t to,
                  int64_t n) noexcept {
  while (n > 0) {
    const int64_t piece = std::min({n, s.layout(x).left(from, s.width(x)), s.layout(y).left(to, s.width(y))});
    std::copy_n(s.column(x, i, from), piece, s.column(y, k, to));
    from += piece, to += piece, n -= piece;
  }
}

void rms_norm(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::RmsNorm>();
  if (op.w == ops::kNone) return of.record.run(s.host_rows, begin, end);
  const float* w = s.small_weights[static_cast<size_t>(op.w)];
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t j = 0; j < s.width(op.y); j += op.d)
      s.kernels.rms_norm(s.column(op.x, t, j), w, op.eps, op.d, s.column(op.y, t, j));
  }
}

void rope(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::Rope>();
  const ops::RopeTable& table = s.rope_tables[static_cast<size_t>(op.rope)];
  const ops::RopeSpec& spec = table.spec();
  for (int64_t t = begin; t < end; ++t) {
    const int64_t position = s.positions[static_cast<size_t>(s.token_of(op.y, t))];
    for (int64_t i = 0; i < op.n_heads; ++i) {
      const int64_t first = i * op.head_dim;
      s.kernels.rope(s.column(op.x, t, first), table.cos(position), table.sin(position), spec.dim, spec.interleaved,
                     op.head_dim, s.column(op.y, t, first));
    }
  }
}

void kv_store(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte* scratch) noexcept {
  const auto& op = *of.as<ops::KvStore>();
  const ops::CacheLayer& layer = s.plan.cache_layers[static_cast<size_t>(op.layer)];
  for (int64_t i = 0; i < layer.n_kv_heads; ++i) {
    for (int64_t t = begin; t < end; ++t) {
      const CacheHead head = s.cache.head(op.layer, s.sequence_of(t), i);
      const int64_t position = s.positions[static_cast<size_t>(t)];
      s.kernels.store_key(head, position, s.column(op.k, t, i * layer.head_dim), scratch);
      if (op.v != ops::kNone) s.kernels.store_value(head, position, s.column(op.v, t, i * layer.v_dim()), scratch);
    }
  }
}

void add(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::Add>();
  by_pieces<3>(s, {op.a, op.b, op.y}, begin, end,
               [&](const Pieces<3>& at, int64_t n) { s.kernels.add(at[0], at[1], n, at[2]); });
}

void gate(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::Gate>();
  if (s.width(op.gate) != s.width(op.y)) return of.record.run(s.host_rows, begin, end);
  const auto kernel = s.kernels.gate[static_cast<size_t>(op.activation)];
  by_pieces<3>(s, {op.gate, op.up, op.y}, begin, end,
               [&](const Pieces<3>& at, int64_t n) { kernel(at[0], at[1], n, at[2]); });
}

void activate(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::Activate>();
  const auto kernel = s.kernels.activate[static_cast<size_t>(op.activation)];
  by_pieces<2>(s, {op.x, op.y}, begin, end, [&](const Pieces<2>& at, int64_t n) { kernel(at[0], n, at[1]); });
}

void clamped_gate(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::ClampedGate>();
  const auto alpha = static_cast<float>(op.alpha), limit = static_cast<float>(op.limit);
  by_pieces<3>(s, {op.gate, op.up, op.y}, begin, end,
               [&](const Pieces<3>& at, int64_t n) { s.kernels.clamped_gate(at[0], at[1], alpha, limit, n, at[2]); });
}

void softcap(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::Softcap>();
  s.kernels.softcap(s.row(op.x, begin), static_cast<float>(op.cap), (end - begin) * s.width(op.y), s.row(op.y, begin));
}

void expert_sum(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::ExpertSum>();
  for (int64_t t = begin; t < end; ++t) {
    s.kernels.expert_sum(s.row(op.x, t * op.n_used), op.weighted ? s.row(op.routes, t) : nullptr, op.n_used,
                         s.width(op.y), s.row(op.y, t));
  }
}

void layer_norm(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::LayerNorm>();
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t j = 0; j < s.width(op.y); j += op.d) {
      const auto own = [&](ops::WeightId id) {
        return id == ops::kNone ? nullptr : s.small_weights[static_cast<size_t>(id)] + (op.by_column ? j : 0);
      };
      s.kernels.layer_norm(s.column(op.x, t, j), own(op.w), own(op.bias), op.eps, op.d, s.column(op.y, t, j));
    }
  }
}

void select_outputs(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::SelectOutputs>();
  for (int64_t i = begin; i < end; ++i) {
    copy_columns(s, op.x, s.shape.selected[static_cast<size_t>(i)], 0, op.y, i, 0, s.width(op.y));
  }
}

void slice(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::Slice>();
  const int64_t from = s.width(op.x) / op.n_runs, to = s.width(op.y) / op.n_runs;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t i = 0; i < op.n_runs; ++i) copy_columns(s, op.x, t, i * from + op.first, op.y, t, i * to, to);
  }
}

template <bool copies_a, bool copies_b>
void join(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::Join>();
  const int64_t from_a = s.width(op.a) / op.n_runs, to = s.width(op.y) / op.n_runs, from_b = to - from_a;
  const int64_t stride_b = s.width(op.b) == from_b ? 0 : from_b;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t i = 0; i < op.n_runs; ++i) {
      if constexpr (copies_a) copy_columns(s, op.a, t, i * from_a, op.y, t, i * to, from_a);
      if constexpr (copies_b) copy_columns(s, op.b, t, i * stride_b, op.y, t, i * to + from_a, from_b);
    }
  }
}

// A value that lies where it is wanted.
void no_copy(const RunState&, const ops::Op&, int64_t, int64_t, std::byte*) noexcept {}

RowKernel join_kernel(const ops::Join& op, const lower::Views& views) noexcept {
  const auto [a, b] = lower::parts_in_place(op, views);
  if (a) return b ? no_copy : join<false, true>;
  return b ? join<true, false> : join<true, true>;
}

struct TableRow {
  const void* op;  // its type
  RowKernel kernel;
};
template <class R>
TableRow row(RowKernel kernel) noexcept {
  return {ops::Record::type_of<R>(), kernel};
}

}  // namespace

RowKernel row_kernel_of(const ops::Op& op, const lower::Views& views) noexcept {
  if (const auto* of = op.as<ops::Slice>(); of != nullptr && lower::is_view_of_input(*of, views)) return no_copy;
  if (const auto* of = op.as<ops::Join>()) return join_kernel(*of, views);
  const TableRow table[] = {row<ops::RmsNorm>(rms_norm),
                            row<ops::LayerNorm>(layer_norm),
                            row<ops::Rope>(rope),
                            row<ops::KvStore>(kv_store),
                            row<ops::Add>(add),
                            row<ops::Gate>(gate),
                            row<ops::ClampedGate>(clamped_gate),
                            row<ops::Activate>(activate),
                            row<ops::Softcap>(softcap),
                            row<ops::ExpertSum>(expert_sum),
                            row<ops::SelectOutputs>(select_outputs),
                            row<ops::Slice>(slice)};
  const auto* found = std::ranges::find(table, op.record.type(), &TableRow::op);
  return found == std::end(table) ? borrow : found->kernel;
}

bool is_borrowed(RowKernel kernel) noexcept { return kernel == borrow; }
bool copies_nothing(RowKernel kernel) noexcept { return kernel == no_copy; }

}  // namespace assay::backend::cpu
