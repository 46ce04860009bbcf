// See row_table.h.
#include "backend/cpu/rows/row_table.h"

#include <algorithm>

#include "backend/cpu/runtime/run_state.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/linear/expert_sum.h"
#include "ops/rows/activate.h"
#include "ops/rows/add.h"
#include "ops/rows/clamped_gate.h"
#include "ops/rows/gate.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/select_outputs.h"
#include "ops/rows/softcap.h"

namespace assay::backend::cpu {
namespace {

void borrow(const RunState& s, const ops::Op& op, int64_t begin, int64_t end, std::byte*) noexcept {
  op.record.run(s.host_rows, begin, end);
}

void rms_norm(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::RmsNorm>();
  if (op.w == ops::kNone) return of.record.run(s.host_rows, begin, end);
  const float* w = s.small_weights[static_cast<size_t>(op.w)];
  const int64_t n_runs = s.width(op.y) / op.d;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t i = 0; i < n_runs; ++i)
      s.kernels.rms_norm(s.row(op.x, t) + i * op.d, w, op.eps, op.d, s.row(op.y, t) + i * op.d);
  }
}

void rope(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::Rope>();
  const ops::RopeTable& table = s.rope_tables[static_cast<size_t>(op.rope)];
  const ops::RopeSpec& spec = table.spec();
  for (int64_t t = begin; t < end; ++t) {
    const int64_t position = s.positions[static_cast<size_t>(s.token_of(op.y, t))];
    for (int64_t i = 0; i < op.n_heads; ++i) {
      s.kernels.rope(s.row(op.x, t) + i * op.head_dim, table.cos(position), table.sin(position), spec.dim,
                     spec.interleaved, op.head_dim, s.row(op.y, t) + i * op.head_dim);
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
      s.kernels.store_key(head, position, s.row(op.k, t) + i * layer.head_dim, scratch);
      if (op.v != ops::kNone) s.kernels.store_value(head, position, s.row(op.v, t) + i * layer.v_dim(), scratch);
    }
  }
}

void add(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::Add>();
  s.kernels.add(s.row(op.a, begin), s.row(op.b, begin), (end - begin) * s.width(op.y), s.row(op.y, begin));
}

void gate(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::Gate>();
  if (s.width(op.gate) != s.width(op.y)) return of.record.run(s.host_rows, begin, end);
  s.kernels.gate[static_cast<size_t>(op.activation)](s.row(op.gate, begin), s.row(op.up, begin),
                                                     (end - begin) * s.width(op.y), s.row(op.y, begin));
}

void activate(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::Activate>();
  s.kernels.activate[static_cast<size_t>(op.activation)](s.row(op.x, begin), (end - begin) * s.width(op.y),
                                                         s.row(op.y, begin));
}

void clamped_gate(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::ClampedGate>();
  s.kernels.clamped_gate(s.row(op.gate, begin), s.row(op.up, begin), static_cast<float>(op.alpha),
                         static_cast<float>(op.limit), (end - begin) * s.width(op.y), s.row(op.y, begin));
}

void softcap(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::Softcap>();
  s.kernels.softcap(s.row(op.x, begin), static_cast<float>(op.cap), (end - begin) * s.width(op.y), s.row(op.y, begin));
}

void expert_sum(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::ExpertSum>();
  for (int64_t t = begin; t < end; ++t) {
    s.kernels.expert_sum(s.row(op.x, t), op.weighted ? s.row(op.routes, t) : nullptr, op.n_used, s.width(op.y),
                         s.row(op.y, t));
  }
}

void layer_norm(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::LayerNorm>();
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t j = 0; j < s.width(op.y); j += op.d) {
      const auto own = [&](ops::WeightId id) {
        return id == ops::kNone ? nullptr : s.small_weights[static_cast<size_t>(id)] + (op.by_column ? j : 0);
      };
      s.kernels.layer_norm(s.row(op.x, t) + j, own(op.w), own(op.bias), op.eps, op.d, s.row(op.y, t) + j);
    }
  }
}

void select_outputs(const RunState& s, const ops::Op& of, int64_t begin, int64_t end, std::byte*) noexcept {
  const auto& op = *of.as<ops::SelectOutputs>();
  for (int64_t i = begin; i < end; ++i) {
    std::copy_n(s.row(op.x, s.shape.selected[static_cast<size_t>(i)]), s.width(op.y), s.row(op.y, i));
  }
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

RowKernel row_kernel_of(const ops::Op& op) noexcept {
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
                            row<ops::SelectOutputs>(select_outputs)};
  const auto* found = std::ranges::find(table, op.record.type(), &TableRow::op);
  return found == std::end(table) ? borrow : found->kernel;
}

bool is_borrowed(RowKernel kernel) noexcept { return kernel == borrow; }

}  // namespace assay::backend::cpu
