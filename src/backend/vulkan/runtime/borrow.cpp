// See borrow.h.
#include "backend/vulkan/runtime/borrow.h"

#include <algorithm>
#include <array>
#include <string>

#include "assay/error.h"
#include "ops/plan/cached_run.h"
#include "ops/plan/op_values.h"
#include "ops/state/run_on_host.h"
#include "quant/activations.h"

namespace assay::backend::vulkan {
namespace {

// Rows as a product's weights want them: floats, and where the weights are integers these.
struct ProductRows {
  const quant::Format& format;
  bool as_floats;
  const float* x;
  int64_t k;
  quant::Activations integers;
  std::vector<std::byte> memory;

  ProductRows(const quant::Format& of, const ops::ExecutorOptions& options, const float* rows, int64_t n_rows,
              int64_t n)
      : format(of), as_floats(options.weights_as_f32 || of.activation == quant::Activation::f32), x(rows), k(n) {
    if (as_floats) return;
    memory.resize(quant::activations_bytes(format.activation, options.planes, n_rows, k) + 64);
    std::byte* place = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    integers = quant::carve(format.activation, options.planes, n_rows, k, place);
    for (int64_t i = 0; i < n_rows; ++i) quant::quantise_row_ref(x + i * k, integers, i);
  }
  float times(const std::byte* weights, int64_t row, const float* bias) const {
    return as_floats ? ops::linear_f32_ref(format, weights, x + row * k, k, bias)
                     : ops::linear_ref(format, weights, integers, row, bias);
  }
};

// Stored positions of all heads as floats.
std::vector<float> decoded(const CacheRows& rows, std::span<const std::byte> bytes) {
  const int64_t head_bytes = ops::cache_row_bytes(rows.type, rows.dim),
                n = static_cast<int64_t>(bytes.size()) / head_bytes;
  std::vector<float> floats(static_cast<size_t>(n * rows.dim));
  for (int64_t i = 0; i < n; ++i)
    ops::cache_decode_ref(rows.type, bytes.data() + i * head_bytes, rows.dim, floats.data() + i * rows.dim);
  return floats;
}

}  // namespace

Borrower::Borrower(const ops::Plan& plan, const ops::ExecutorOptions& options, const lower::SmallWeights& small,
                   base::ThreadPool& pool)
    : plan_(plan), options_(options), pool_(pool), states_(plan, options), small_(small), memory_(plan.values.size()),
      values_(plan.values.size(), nullptr) {
  for (const ops::Op& op : plan.ops) {
    if (op.record.role() == ops::Role::gather)
      throw Error(Errc::unsupported, op.name +
                                         ": the Vulkan backend runs no shards of a model (--split-mode tensor); "
                                         "--split-mode layer serves several devices");
  }
}

void Borrower::begin(const ops::Batch& batch, const ops::BatchShape& shape,
                     std::span<const ops::RopeTable> rope_tables) {
  shape_ = &shape;
  rows_ = {&plan_, values_, small_.all(), rope_tables, batch.tokens, batch.positions, shape.selected};
}

void Borrower::run(DeviceState& s, int32_t i_op) {
  const ops::Op& op = plan_.ops[static_cast<size_t>(i_op)];
  const ops::OpValues of = ops::values_of(op);
  for (const ops::ValueId id : of.inputs) {
    std::vector<float>& rows = memory_[static_cast<size_t>(id)];
    rows.resize(static_cast<size_t>(s.n_rows(id) * s.width(id)));
    values_[static_cast<size_t>(id)] = rows.data();
    s.read_value(id, rows);
  }
  if (of.output != ops::kNone) {
    std::vector<float>& rows = memory_[static_cast<size_t>(of.output)];
    rows.resize(static_cast<size_t>(s.n_rows(of.output) * s.width(of.output)));
    values_[static_cast<size_t>(of.output)] = rows.data();
  }
  if (const auto* linear = op.as<ops::Linear>()) {
    run(s, *linear);
  } else if (const auto* experts = op.as<ops::ExpertLinear>()) {
    run(s, *experts);
  } else if (const auto* attention = op.as<ops::Attention>()) {
    run(s, *attention);
  } else if (const auto* store = op.as<ops::KvStore>()) {
    run(s, *store);
  } else if (const auto* select = op.as<ops::SelectOutputs>()) {
    run(s, *select);
  } else if (op.record.role() == ops::Role::cached) {
    run_cached(s, op);
  } else {
    ops::run_on_host(op, rows_, states_, s.n_rows(of.output));
  }
  if (of.output != ops::kNone) s.write_value(of.output, memory_[static_cast<size_t>(of.output)]);
}

void Borrower::run(DeviceState& s, const ops::Linear& op) {
  const tensor::TensorView& w = weight(op.w);
  const int64_t n_tokens = s.n_rows(op.y), n_rows = s.width(op.y);
  const ProductRows x(*quant::find_format(w.dtype), options_, rows_of(op.x), n_tokens, s.width(op.x));
  const float* bias = small(op.bias);
  pool_.run(n_rows, [&](int64_t row, int) {
    for (int64_t t = 0; t < n_tokens; ++t)
      rows_of(op.y)[t * n_rows + row] = x.times(w.row(row), t, bias == nullptr ? nullptr : bias + row);
  });
}

void Borrower::run(DeviceState& s, const ops::ExpertLinear& op) {
  const tensor::TensorView& w = weight(op.w);
  const ops::Value& of_x = plan_.values[static_cast<size_t>(op.x)];
  const int64_t n_of_row = of_x.width / op.d_in;  // inputs side by side
  const ProductRows x(*quant::find_format(w.dtype), options_, rows_of(op.x), s.n_rows(op.x) * n_of_row, op.d_in);
  const float* bias = small(op.bias);
  pool_.run(op.n_pairs(s.n_rows(op.y)), [&](int64_t pair, int) {
    const float* routes = op.routes == ops::kNone ? nullptr : rows_of(op.routes) + pair / op.n_used * 2 * op.n_used;
    const int64_t expert = ops::expert_of(routes, op.n_used, pair % op.n_used);
    const auto [i, column] = op.input_of(of_x, pair);
    const int64_t x_row = i * n_of_row + column / op.d_in;
    for (int64_t r = 0; r < op.d_out; ++r) {
      const int64_t row = op.row_of(expert) + r;
      rows_of(op.y)[pair * op.d_out + r] = x.times(w.row(row), x_row, bias == nullptr ? nullptr : bias + row);
    }
  });
}

std::vector<float> Borrower::read_back(DeviceState& s, const CacheRows& rows, int32_t sequence) const {
  const int64_t n_positions = shape_->n_positions[static_cast<size_t>(sequence)];
  std::vector<std::byte> bytes(static_cast<size_t>(n_positions * rows.position_bytes));
  s.cache.read(rows, sequence, 0, n_positions, bytes);
  return decoded(rows, bytes);
}

void Borrower::run(DeviceState& s, const ops::Attention& op) {
  const CacheRows& stored_k = s.cache.keys(op.layer);
  const CacheRows& stored_v = s.cache.values(op.layer);
  const int64_t v_dim = s.cache.layer(op.layer).v_dim(), n_kv = op.n_kv_heads;
  const float* sinks = small(op.sinks);
  for (const ops::TokenRun& run : shape_->token_runs) {
    const int64_t n_positions = shape_->n_positions[static_cast<size_t>(run.sequence)];
    const std::vector<float> keys = read_back(s, stored_k, run.sequence), values = read_back(s, stored_v, run.sequence);
    pool_.run(run.n * op.n_heads, [&](int64_t i, int) {
      const int64_t t = i / op.n_heads, head = i % op.n_heads, kv_head = head / (op.n_heads / n_kv),
                    position = run.position + t;
      const ops::ScoreRule rule = {static_cast<float>(op.scale), static_cast<float>(op.softcap),
                                   sinks == nullptr ? nullptr : sinks + head};
      const tensor::ConstMat k{keys.data() + kv_head * stored_k.dim, n_positions, stored_k.dim, n_kv * stored_k.dim};
      const tensor::ConstMat v{values.data() + kv_head * stored_v.dim, n_positions, v_dim, n_kv * stored_v.dim};
      const int64_t row = (run.begin + t) * op.n_heads + head;
      ops::attention_ref(rows_of(op.q) + row * op.head_dim, k, v, ops::first_visible(position, op),
                         ops::last_visible(position, n_positions, op), rule, rows_of(op.y) + row * v_dim);
    });
  }
}

void Borrower::run_cached(DeviceState& s, const ops::Op& op) {
  const int32_t layer = ops::cache_layer_of(op);
  const CacheRows& stored_k = s.cache.keys(layer);
  const CacheRows& stored_v = s.cache.values(layer);
  for (const ops::TokenRun& run : shape_->token_runs) {
    const int64_t n = shape_->n_positions[static_cast<size_t>(run.sequence)];
    const std::vector<float> keys = read_back(s, stored_k, run.sequence);
    const std::vector<float> values =
        &stored_v == &stored_k ? std::vector<float>() : read_back(s, stored_v, run.sequence);
    const int64_t k_stride = stored_k.n_kv_heads * stored_k.dim, v_stride = stored_v.n_kv_heads * stored_v.dim;
    pool_.run(run.n, [&](int64_t i, int) {
      std::vector<float> scratch(static_cast<size_t>(n));
      std::vector<int32_t> order(static_cast<size_t>(n));
      const ops::CachedRun<float> at{
          n,        keys.data(),    k_stride,    values.empty() ? keys.data() : values.data(),
          v_stride, scratch.data(), order.data()};
      op.record.run(rows_, at, run.begin + i, run.begin + i + 1);
    });
  }
}

void Borrower::run(DeviceState& s, const ops::KvStore& op) {
  const auto store = [&](ops::ValueId id, const CacheRows& rows) {
    const int64_t head_bytes = ops::cache_row_bytes(rows.type, rows.dim);
    std::vector<std::byte> bytes;
    for (const ops::TokenRun& run : shape_->token_runs) {
      bytes.resize(static_cast<size_t>(run.n * rows.position_bytes));
      const float* from = rows_of(id) + run.begin * rows.n_kv_heads * rows.dim;
      for (int64_t i = 0; i < run.n * rows.n_kv_heads; ++i)
        ops::cache_encode_ref(rows.type, from + i * rows.dim, rows.dim, bytes.data() + i * head_bytes);
      s.cache.write(rows, run.sequence, run.position, bytes);
    }
  };
  store(op.k, s.cache.keys(op.layer));
  if (op.v != ops::kNone) store(op.v, s.cache.values(op.layer));
}

void Borrower::run(DeviceState& s, const ops::SelectOutputs& op) {
  const int64_t n = s.width(op.x);
  for (size_t i = 0; i < shape_->selected.size(); ++i)
    std::copy_n(rows_of(op.x) + shape_->selected[i] * n, n, rows_of(op.y) + static_cast<int64_t>(i) * n);
}

}  // namespace assay::backend::vulkan
