// The faulty engine by itself: right without a fault. That every fault changes what it computes:
// fault_effects_test.cpp.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "backend/oracle/oracle_executor.h"
#include "faulty/catalogue.h"
#include "faulty/plain_formats.h"
#include "faulty/probe_run.h"
#include "num/f16.h"
#include "support/random_weights.h"

namespace assay::faults {
namespace {

std::vector<double> oracle_logits(const Model& model) {
  const ops::Plan& plan = model.state().built.plan;
  base::ThreadPool pool(1);
  ops::ExecutorOptions options;
  options.n_ctx = 64;
  options.n_sequences = 2;
  const auto executor = backend::oracle::make_oracle_executor(plan, options, pool);
  return logits_of(*executor, plan);
}

TEST(FaultyExecutor, IsRightWithoutAFault) {
  for (const ModelSpec& spec : {k_quants(), blocks_32(), gemma()}) {
    const auto model = load(spec);
    const std::vector<double> right = oracle_logits(*model);
    EngineOptions options;
    options.cache = ops::CacheType::f32;
    EXPECT_LT(relative_difference(faulty_logits(*model, options), right), 2e-6) << spec.seed;
    options.cache = ops::CacheType::f16;
    EXPECT_LT(relative_difference(faulty_logits(*model, options), right), 1e-3) << spec.seed;
    options.activation_bits = 8;
    EXPECT_LT(relative_difference(faulty_logits(*model, options), right), 3e-2) << spec.seed;
  }
}

TEST(Catalogue, HasEveryRowOnce) {
  std::set<std::string> ids;
  for (const Row& row : family_rows())
    EXPECT_EQ((row.fault != Fault::none) + (row.change_plan != nullptr), 1) << row.id;
  for (const Row& row : catalogue()) {
    EXPECT_TRUE(ids.insert(row.id).second) << row.id;
    const bool around = row.change_subject != nullptr, file = row.change_file != nullptr;
    const int n_ways =
        (row.fault != Fault::none) + around + file + (row.why_not != nullptr) + (row.change_plan != nullptr);
    EXPECT_EQ(n_ways, 1) << row.id;
  }
  EXPECT_EQ(ids.size(), 80u);
  for (int i = 1; i <= 20; ++i) EXPECT_TRUE(ids.contains(fmt::format("R{}", i))) << i;
  for (int i = 1; i <= 60; ++i) EXPECT_TRUE(ids.contains(fmt::format("C{}", i))) << i;
}

TEST(FaultyExecutor, DecodesEveryFormatAsDefined) {
  for (const quant::Format& format : quant::all_formats()) {
    if (!decodes(format.dtype)) continue;
    const int64_t n = 4 * tensor::traits(format.dtype).block_elements;
    const std::vector<std::byte> row = test::random_weights(format, n, 7);
    std::vector<float> expected(static_cast<size_t>(n)), found(static_cast<size_t>(n));
    quant::decode_row(format, row.data(), n, expected.data());
    decode_plain(format.dtype, row.data(), n, found.data(), Fault::none);
    EXPECT_EQ(expected, found) << tensor::traits(format.dtype).name;
  }
}

TEST(FaultyExecutor, RoundsToHalfPrecisionAsDefined) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float x = num::half_to_float(half);
    if (std::isnan(x)) continue;
    EXPECT_EQ(half_bits(x), half);
    EXPECT_EQ(to_half(x), x);
    const float above = std::nextafter(x * 1.0001f, 1e9f);
    EXPECT_EQ(to_half(above), num::half_to_float(num::float_to_half(above))) << above;
  }
}

}  // namespace
}  // namespace assay::faults
