// Rows of the CPU's tables of matrix products, forced by their names (ContextOptions::kernel_row): every one gives a
// whole model's bits, and runs what it takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "assay/error.h"
#include "backend/cpu/linear/linear_table.h"
#include "base/thread_pool.h"
#include "engine/context_options.h"
#include "engine/model_state.h"
#include "support/invariance.h"

namespace assay {
namespace {

using testing::HasSubstr;

// Wide enough for the rows of the tables that want long columns.
std::shared_ptr<const Model> wide_model(tensor::DType dtype) {
  test::TinyLlama spec;
  spec.dtype = dtype;
  spec.n_heads = 8;  // attention's output has 512 columns, down 1280, the others 256
  spec.d_ff = 1280;
  spec.n_layers = 1;
  const test::TempFolder folder;
  test::TinyLlamaWriter(spec).file().write(folder / "wide.gguf");
  return Model::load((folder / "wide.gguf").string(), {.tokenizer = false});
}

// Whether the plan has an op whose kernel is the row.
bool is_used(const Model& model, const test::Setting& setting, const test::Way& way) {
  ContextOptions options;
  options.n_ctx = 64;
  options.activation_bits = setting.activation_bits;
  options.kernels = way.kernels;
  options.kernel_row = way.kernel_row;
  base::ThreadPool pool(1);
  const engine::ChosenExecutor made = engine::make_executor(model, engine::resolve(options, model), pool);
  const std::string row = std::string(name(way.kernels)) + " " + way.kernel_row;
  EXPECT_EQ(made.kernels, std::string(name(way.kernels)) + ":" + way.kernel_row);
  for (size_t i = 0; i < model.state().built.plan.ops.size(); ++i) {
    const auto uses = made.executor->kernels_of(static_cast<int32_t>(i));
    if (std::ranges::any_of(uses, [&](const ops::KernelUse& use) { return use.name == row; })) return true;
  }
  return false;
}

TEST(KernelRows, EachForcedByItsNameGivesTheSameBits) {
  const std::vector<TokenId> ids = test::random_tokens(40, 96);
  std::set<std::string> used;
  for (const tensor::DType dtype :
       {tensor::DType::F16, tensor::DType::Q8_0, tensor::DType::Q4_0, tensor::DType::Q4_K}) {
    const std::shared_ptr<const Model> model = wide_model(dtype);
    for (const int bits : {15, 8}) {
      const test::Setting setting{.activation_bits = bits};
      const test::Digests expected = test::run_digests(model, ids, setting, {1, 40, Kernels::best, {}});
      for (const Kernels set : backend::cpu::kernel_sets()) {
        for (const backend::cpu::LinearRow& row : backend::cpu::linear_table(set)) {
          test::Way way{2, row.tokens_min, set, {}};
          way.kernel_row = row.name;
          if (!is_used(*model, setting, way)) continue;
          used.insert(std::string(name(set)) + ":" + way.kernel_row);
          for (const int64_t n : {row.tokens_min, std::min<int64_t>(row.tokens_max, 40)}) {
            way.n_ubatch = n;
            EXPECT_EQ(test::run_digests(model, ids, setting, way), expected)
                << tensor::traits(dtype).name << ", " << bits << " bits: " << way.name();
          }
        }
      }
    }
  }
  for (const Kernels set : backend::cpu::kernel_sets()) {
    for (const backend::cpu::LinearRow& row : backend::cpu::linear_table(set)) {
      const std::string key = std::string(name(set)) + ":" + std::string(row.name);
      EXPECT_TRUE(used.contains(key)) << key << " was run by no model";
    }
  }
}

TEST(KernelRows, AreNamedWithTheirSet) {
  EXPECT_EQ(parse_kernel_choice("auto").set, Kernels::best);
  EXPECT_EQ(parse_kernel_choice("auto").row, "");
  for (const Kernels set : backend::cpu::kernel_sets()) {
    for (const backend::cpu::LinearRow& row : backend::cpu::linear_table(set)) {
      std::string text = std::string(name(set)) + ":" + std::string(row.name);
      EXPECT_EQ(parse_kernel_choice(text).row, row.name);
      std::ranges::replace(text, ' ', '-');
      EXPECT_EQ(parse_kernel_choice(text).row, row.name);
      EXPECT_EQ(parse_kernel_choice(text).set, set);
    }
  }
}

TEST(KernelRows, AnUnknownNameIsRefusedWithTheList) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      parse_kernel_choice(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Errc::bad_request);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("auto:vector"), HasSubstr("the name of its set"));
  EXPECT_THAT(refusal("reference:vector"), HasSubstr("has no rows"));
  EXPECT_THAT(refusal("sse2:vector"), HasSubstr("one of auto, reference, avx2"));
  EXPECT_THAT(refusal("reference:"), HasSubstr("has no rows"));
  for (const Kernels set : backend::cpu::kernel_sets().subspan(1)) {
    const std::string found = refusal(std::string(name(set)) + ":vectors");
    for (const backend::cpu::LinearRow& row : backend::cpu::linear_table(set))
      EXPECT_THAT(found, HasSubstr(std::string(row.name)));
    EXPECT_THAT(found, HasSubstr("\"vectors\""));
  }
  ContextOptions options;
  options.kernel_row = "vector";  // of no set that is named
  EXPECT_THROW(Context(wide_model(tensor::DType::Q8_0), options), Error);
}

TEST(KernelRows, AModeForgetsThem) {
  for (const Kernels set : backend::cpu::kernel_sets().subspan(1)) {
    ContextOptions options;
    set_kernels(options, std::string(name(set)) + ":vector");
    EXPECT_EQ(options.kernel_row, "vector");
    EXPECT_EQ(with_mode(options, name(set))->kernel_row, "");
    EXPECT_EQ(with_mode(options, "cuda")->kernel_row, "");
    EXPECT_EQ(with_mode(options, "fast")->kernel_row, "");
    EXPECT_EQ(with_mode(options, "exact/8")->kernel_row, "vector");
  }
}

}  // namespace
}  // namespace assay
