// Mode fast on the GPU: every way of cutting the tokens gives the same logits and the same cache, again and again, and
// they are close to mode exact's. On a CPU the mode is refused (context_test).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "assay/devices.h"
#include "backend/cuda/cuda.h"
#include "num/f16.h"
#include "quant/format.h"
#include "support/random_numbers.h"
#include "support/random_weights.h"
#include "support/tiny_plan.h"

namespace assay {
namespace {

constexpr int kTokens = 290;  // more than a segment of attention

struct Outcome {
  std::vector<std::vector<float>> logits;  // of every token
  std::vector<std::byte> cache;
};

enum class Mode { exact, fast, halves };  // fast with integers for quantised weights, and with half precision

ops::ExecutorOptions options_for(Mode mode) {
  ops::ExecutorOptions options;
  options.n_ctx = 400;
  options.n_batch_max = 2 * kTokens;
  options.n_outputs_max = kTokens;
  options.n_sequences = 2;
  options.fast = mode != Mode::exact;
  options.halves = mode == Mode::halves;
  return options;
}

// The tokens of sequence 0 in chunks of these sizes by turns; beside: as many of sequence 1 run along.
Outcome run_in_chunks(const ops::Plan& plan, Mode mode, const std::vector<int>& sizes, bool beside) {
  const auto executor = backend::cuda::make_cuda_executor(plan, options_for(mode));
  test::Random ids(3), others(4);
  std::vector<int32_t> all;
  for (int i = 0; i < kTokens; ++i) all.push_back(ids.below(64));
  Outcome run;
  for (int begin = 0, i = 0; begin < kTokens; ++i) {
    const int n = std::min(sizes[static_cast<size_t>(i) % sizes.size()], kTokens - begin);
    std::vector<int32_t> tokens(all.begin() + begin, all.begin() + begin + n), positions(static_cast<size_t>(n)),
        sequences(tokens.size(), 0);
    std::iota(positions.begin(), positions.end(), begin);
    std::vector<uint8_t> outputs(tokens.size(), 1);
    for (int j = 0; beside && j < n; ++j) {
      tokens.push_back(others.below(64));
      positions.push_back(begin + j);
      sequences.push_back(1);
      outputs.push_back(0);
    }
    executor->run({tokens, positions, sequences, outputs});
    for (int j = 0; j < n; ++j) run.logits.emplace_back(executor->logits(j).begin(), executor->logits(j).end());
    begin += n;
  }
  executor->visit_cache(
      0, [&](std::span<const std::byte> bytes) { run.cache.insert(run.cache.end(), bytes.begin(), bytes.end()); });
  return run;
}

bool same_bits(const Outcome& a, const Outcome& b) {
  if (a.logits.size() != b.logits.size() || a.cache != b.cache) return false;
  for (size_t i = 0; i < a.logits.size(); ++i) {
    if (std::memcmp(a.logits[i].data(), b.logits[i].data(), a.logits[i].size() * sizeof(float)) != 0) return false;
  }
  return true;
}

// The largest distance of a token's logits from exact, as a share of the distance of its largest logit from their mean.
double distance(const Outcome& fast, const Outcome& exact) {
  double worst = 0;
  for (size_t i = 0; i < exact.logits.size(); ++i) {
    const std::vector<float>& e = exact.logits[i];
    const double mean = std::accumulate(e.begin(), e.end(), 0.0) / static_cast<double>(e.size());
    const double span = static_cast<double>(*std::max_element(e.begin(), e.end())) - mean;
    for (size_t j = 0; j < e.size(); ++j) {
      worst = std::max(worst, std::abs(static_cast<double>(fast.logits[i][j]) - static_cast<double>(e[j])) / span);
    }
  }
  return worst;
}

// Random blocks have scales of all sizes, beyond what half precision holds after two layers. Real ones keep rows at
// their length.
void soften(const ops::Plan& plan) {
  for (const ops::Weight& weight : plan.weights) {
    const tensor::TensorView& view = weight.view;
    const quant::Format& format = *quant::find_format(view.dtype);
    if (format.activation == quant::Activation::f32) continue;
    std::vector<float> values(static_cast<size_t>(view.shape.elements()));
    quant::decode_row(format, view.data.data(), view.shape.elements(), values.data());
    const double squares = std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
    const auto factor = static_cast<float>(std::sqrt(static_cast<double>(view.shape.rows()) / squares));
    const test::ScaleOffsets offsets = test::scale_offsets(view.dtype);
    auto* bytes = const_cast<std::byte*>(view.data.data());  // the test's own
    const auto block = static_cast<size_t>(tensor::traits(view.dtype).block_bytes);
    for (size_t at = 0; at < view.data.size(); at += block) {
      for (const int offset : {offsets.d, offsets.m}) {
        if (offset < 0) continue;
        uint16_t half = 0;
        std::memcpy(&half, bytes + at + offset, 2);
        half = num::float_to_half(num::half_to_float(half) * factor);
        std::memcpy(bytes + at + offset, &half, 2);
      }
    }
  }
}

void check(const test::TinyShape& shape, Mode mode) {
  const test::TinyPlan tiny(shape);
  soften(tiny.plan);
  const std::string what = std::string(tensor::traits(shape.dtype).name) + ", heads of " +
                           std::to_string(shape.head_dim) + (shape.gemma ? ", gemma" : ", llama");
  const Outcome whole = run_in_chunks(tiny.plan, mode, {kTokens}, false);
  EXPECT_TRUE(same_bits(run_in_chunks(tiny.plan, mode, {kTokens}, false), whole)) << what << ", again";
  EXPECT_TRUE(same_bits(run_in_chunks(tiny.plan, mode, {kTokens}, true), whole)) << what << ", beside others";
  EXPECT_TRUE(same_bits(run_in_chunks(tiny.plan, mode, {1}, false), whole)) << what << ", one by one";
  EXPECT_TRUE(same_bits(run_in_chunks(tiny.plan, mode, {1}, true), whole)) << what << ", one by one beside others";
  EXPECT_TRUE(same_bits(run_in_chunks(tiny.plan, mode, {7, 1, 30, 64, 2}, false), whole)) << what << ", in pieces";
  EXPECT_TRUE(same_bits(run_in_chunks(tiny.plan, mode, {66, 3, 17}, true), whole))
      << what << ", in pieces beside others";
  const double far = distance(whole, run_in_chunks(tiny.plan, Mode::exact, {kTokens}, false));
  std::printf("%s: fast is %.2g of the largest logit from exact\n", what.c_str(), far);
  EXPECT_GT(far, 0.0) << what;
  EXPECT_LT(far, shape.dtype == tensor::DType::BF16 ? 0.2 : 0.03) << what;
}

test::TinyShape shape_of(tensor::DType dtype) {
  test::TinyShape shape;
  shape.dtype = dtype;
  shape.d_model = 512;
  shape.d_ff = 768;
  shape.n_heads = 8;
  shape.n_kv_heads = 2;
  shape.head_dim = 64;
  shape.attn_norm = 0.2f;
  return shape;
}

TEST(CudaFastMode, IsTheSameForEveryBatchAndCloseToExact) {
  const std::string none = list_devices().no_cuda;
  if (!none.empty()) GTEST_SKIP() << none;
  for (const tensor::DType dtype : {tensor::DType::F16, tensor::DType::BF16, tensor::DType::Q4_K}) {
    for (const int64_t head_dim : {64, 128}) {
      for (const bool gemma : {false, true}) {
        test::TinyShape shape = shape_of(dtype);
        shape.gemma = gemma;
        shape.head_dim = head_dim;
        shape.window = gemma ? 70 : 0;
        check(shape, Mode::halves);
        if (dtype == tensor::DType::Q4_K) check(shape, Mode::fast);
      }
    }
  }
}

// Formats that are cut into parts, and two that are not.
TEST(CudaFastMode, IsTheSameInOtherFormats) {
  const std::string none = list_devices().no_cuda;
  if (!none.empty()) GTEST_SKIP() << none;
  for (const tensor::DType dtype : {tensor::DType::Q4_0, tensor::DType::Q8_0, tensor::DType::Q5_K, tensor::DType::Q6_K,
                                    tensor::DType::Q5_0, tensor::DType::IQ4_XS}) {
    check(shape_of(dtype), Mode::halves);
  }
}

}  // namespace
}  // namespace assay
