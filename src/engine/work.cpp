// See work.h.
#include "engine/work.h"

#include <algorithm>
#include <variant>

#include "engine/context_options.h"
#include "ops/attention.h"
#include "quant/format.h"

namespace assay::engine {

int64_t WorkCounter::n_rows(ops::ValueId value, const RunShape& shape) const {
  return shape.n_sequences * (plan_.values[static_cast<size_t>(value)].outputs_only ? shape.n_outputs : shape.n_tokens);
}

int64_t WorkCounter::weight_bytes(ops::WeightId weight) const {
  return static_cast<int64_t>(plan_.weights[static_cast<size_t>(weight)].view.data.size());
}

Work WorkCounter::of_linear(const ops::Linear& op, const RunShape& shape) const {
  const int64_t rows = n_rows(op.y, shape);
  if (rows == 0) return {};
  const tensor::TensorView& view = plan_.weights[static_cast<size_t>(op.w)].view;
  Work work;
  work.bytes = weight_bytes(op.w) + (op.bias == ops::kNone ? 0 : weight_bytes(op.bias));
  work.multiply_adds = rows * view.shape.elements();
  const quant::Format* format = quant::find_format(view.dtype);
  if ((options_.numerics == Numerics::exact || options_.numerics == Numerics::fast) && format != nullptr && format->activation != quant::Activation::f32) {
    work.byte_products = work.multiply_adds * (options_.activation_bits == 15 ? 2 : 1);
  } else {
    work.float_multiply_adds = work.multiply_adds;
  }
  return work;
}

Work WorkCounter::of_attention(const ops::Attention& op, const RunShape& shape) const {
  const int64_t end = shape.n_past + shape.n_tokens;
  const int64_t n_keys = end - ops::first_visible(shape.n_past, op.window);
  const int64_t bytes_per_key = ops::cache_row_bytes(cache_type(options_.cache_k), op.head_dim) +
                                ops::cache_row_bytes(cache_type(options_.cache_v), op.head_dim);
  int64_t n_pairs = 0;  // of a query and a key that it sees
  for (int64_t position = shape.n_past; position < end; ++position) n_pairs += position + 1 - ops::first_visible(position, op.window);
  Work work;
  work.bytes = shape.n_sequences * n_keys * op.n_kv_heads * bytes_per_key;
  work.multiply_adds = shape.n_sequences * 2 * n_pairs * op.n_heads * op.head_dim;
  work.float_multiply_adds = work.multiply_adds;
  return work;
}

Work WorkCounter::of_op(const ops::Op& op, const RunShape& shape) const {
  Work work;
  if (const auto* linear = std::get_if<ops::Linear>(&op.record)) {
    work = of_linear(*linear, shape);
  } else if (const auto* attention = std::get_if<ops::Attention>(&op.record)) {
    work = of_attention(*attention, shape);
  } else if (const auto* embed = std::get_if<ops::Embed>(&op.record)) {  // its own rows of the table
    work.bytes = weight_bytes(embed->table) / std::max<int64_t>(plan_.vocab_size, 1) * shape.n_sequences * shape.n_tokens;
  } else if (const auto* norm = std::get_if<ops::RmsNorm>(&op.record)) {
    if (n_rows(norm->y, shape) > 0) work.bytes = weight_bytes(norm->w);
  }
  return work;
}

Work WorkCounter::of_run(const RunShape& shape) const {
  Work sum;
  for (const ops::Op& op : plan_.ops) sum += of_op(op, shape);
  return sum;
}

Work WorkCounter::of_test(const BenchTest& test) const {
  Work sum;
  for (int64_t i = 0; i < test.n_prompt; i += options_.n_ubatch) {
    const int64_t n = std::min(options_.n_ubatch, test.n_prompt - i);
    const Work chunk = of_run({n, test.n_depth + i, i + n == test.n_prompt ? 1 : 0});
    for (int64_t sequence = 0; sequence < test.n_sequences; ++sequence) sum += chunk;
  }
  for (int64_t i = 0; i < test.n_gen; ++i) sum += of_run({1, test.n_depth + test.n_prompt + i, 1, test.n_sequences});
  return sum;
}

}  // namespace assay::engine
