// See work.h.
#include "measure/work.h"

#include <algorithm>

#include "engine/context_options.h"

namespace assay::measure {

WorkCounter::WorkCounter(const ops::Plan& plan, const ContextOptions& options) : plan_(plan), options_(options) {
  executor_.weights_as_f32 = options.numerics != Numerics::exact && options.numerics != Numerics::fast;
  executor_.cache_k = engine::cache_type(options.cache_k);
  executor_.cache_v = engine::cache_type(options.cache_v);
}

Work WorkCounter::of_op(const ops::Op& op, const RunShape& shape) const {
  const ops::OpWork found = op.record.work(ops::WorkScope(plan_, executor_, shape));
  Work work;
  work.bytes = found.bytes;
  work.multiply_adds = found.multiply_adds;
  const bool of_integers = found.of_integers && options_.activation_bits != 16;
  (of_integers ? work.byte_products : work.float_multiply_adds) =
      found.multiply_adds * (of_integers && options_.activation_bits == 15 ? 2 : 1);
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

}  // namespace assay::measure
