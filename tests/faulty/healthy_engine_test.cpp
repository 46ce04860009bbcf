// No false alarm for an engine that is not ours: the second engine without a fault, over random small models, in floats
// and with 8-bit activations, in every type of cache, stays within the bounds that it declares.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "bounds/op_checker.h"
#include "faulty/faulty_executor.h"
#include "faulty/plain_formats.h"
#include "support/random_numbers.h"
#include "support/rounds.h"
#include "support/tiny_plan.h"

namespace assay::faults {
namespace {

using tensor::DType;

test::TinyShape random_shape(test::Random& random) {
  constexpr DType kTypes[] = {DType::F32,  DType::F16,  DType::BF16, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1,
                              DType::Q8_0, DType::Q2_K, DType::Q3_K, DType::Q4_K, DType::Q5_K, DType::Q6_K};
  test::TinyShape s;
  s.dtype = kTypes[random.below(static_cast<int>(std::size(kTypes)))];
  const bool superblocks = tensor::traits(s.dtype).block_elements == 256;
  s.n_kv_heads = 1 + random.below(2);
  s.n_heads = superblocks ? 4 : s.n_kv_heads * (1 + random.below(3));
  s.head_dim = superblocks ? 64 : 32 * (1 + random.below(3));
  s.d_model = superblocks ? 256 : 32 * (1 + random.below(5));
  s.d_ff = superblocks ? 256 : 32 * (1 + random.below(8));
  s.vocab_size = 8 + random.below(120);
  s.n_layers = 1 + random.below(2);
  s.window = random.below(2) * (1 + random.below(9));
  s.gemma = random.below(3) == 0;
  return s;
}

TEST(HealthyEngine, StaysWithinItsBounds) {
  base::ThreadPool pool(1);
  constexpr ops::CacheType kCaches[] = {ops::CacheType::f32, ops::CacheType::f16, ops::CacheType::q8_0};
  for (uint64_t seed = 1; seed <= test::rounds<uint64_t>(400, 100); ++seed) {
    test::Random random(seed);
    const test::TinyShape shape = random_shape(random);
    const test::TinyPlan tiny(shape);
    EngineOptions options;
    options.activation_bits = 8 * random.below(2);
    options.cache = kCaches[random.below(3)];
    const auto executor = make_faulty_executor(tiny.plan, options, 16, 1);
    bounds::OpChecker checker(tiny.plan, declared_of(options), 16, 1, pool);
    for (int32_t position = 0; position < 16;) {
      std::vector<int32_t> tokens, positions;
      const int n = std::min(1 + random.below(9), 16 - position);
      for (int i = 0; i < n; ++i) {
        tokens.push_back(random.below(static_cast<int>(shape.vocab_size)));
        positions.push_back(position++);
      }
      const std::vector<int32_t> sequences(tokens.size(), 0);
      const std::vector<uint8_t> outputs(tokens.size(), 1);
      const ops::Batch batch{tokens, positions, sequences, outputs, {.observer = &checker}};
      checker.begin(batch);
      executor->run(batch);
      checker.end();
    }
    ASSERT_FALSE(checker.place().has_value()) << fmt::format(
        "seed {}, {}, {} bits: {} row {} element {}: found {}, expected {}, bound {}", seed,
        tensor::traits(shape.dtype).name, options.activation_bits, checker.place()->op, checker.place()->row,
        checker.place()->element, checker.place()->found, checker.place()->expected, checker.place()->bound);
  }
}

}  // namespace
}  // namespace assay::faults
