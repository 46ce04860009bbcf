// The checker on healthy runs of small plans in every format, numerics and cache type, and on runs with one small error.
#include "verify/op_checker.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "assay/error.h"
#include "support/checked_run.h"
#include "support/tiny_plan.h"

namespace assay::verify {
namespace {

using test::CheckedRun;
using test::CheckedSetting;
using test::TinyPlan;
using test::TinyShape;

TinyShape shape_of(const quant::Format& format) {
  TinyShape shape;
  shape.dtype = format.dtype;
  if (format.activation == quant::Activation::a256) shape.d_model = shape.d_ff = 256, shape.n_heads = 4, shape.head_dim = 64;
  return shape;
}

// The worst ratio and the tightness of each kind of op.
struct Slack {
  double worst = 0;
  std::vector<double> slack, declared_slack;
};
void collect(const OpChecker& checker, std::map<std::string, Slack>& kinds) {
  for (const OpFigures& f : checker.figures()) {
    Slack& s = kinds[f.kind];
    s.worst = std::max(s.worst, f.worst_ratio);
    if (f.local_error > 0) s.slack.push_back(f.bound / f.local_error);
    if (f.declared_error > 0) s.declared_slack.push_back(f.declared_bound / f.declared_error);
  }
}
double median(std::vector<double> x) {
  if (x.empty()) return 0;
  std::nth_element(x.begin(), x.begin() + static_cast<int64_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

TEST(OpChecker, HealthyRunsStayWithinTheirBoundsInEveryFormat) {
  base::ThreadPool pool(2);
  for (const CheckedSetting& setting : test::checked_settings()) {
    std::map<std::string, Slack> kinds;
    for (const quant::Format& format : quant::all_formats()) {
      const bool every = setting.name == "exact/15, cache f16";
      if (!every && format.dtype != tensor::DType::Q4_1 && format.dtype != tensor::DType::Q4_K && format.dtype != tensor::DType::BF16) continue;
      const TinyPlan tiny(shape_of(format));
      CheckedRun run(tiny.plan, setting, pool, 64);
      const std::vector<int32_t> tokens = run.random_tokens(24, 5);
      run.run(std::span(tokens).first(17));
      for (size_t i = 17; i < 20; ++i) run.run(std::span(tokens).subspan(i, 1));
      run.run(std::span(tokens).subspan(20), 0, nullptr, false);
      EXPECT_EQ(run.failure(), "") << tensor::traits(format.dtype).name << ", " << setting.name;
      EXPECT_EQ(run.checker.figures().size(), tiny.plan.ops.size() - 2 - 2);  // less kv_store and select_outputs, two each
      collect(run.checker, kinds);
    }
    for (const auto& [kind, s] : kinds) {
      std::printf("%-22s %-10s worst %.3f  median slack %.1f  as declared %.1f\n", setting.name.c_str(), kind.c_str(), s.worst, median(s.slack), median(s.declared_slack));
    }
  }
}

}  // namespace
}  // namespace assay::verify
