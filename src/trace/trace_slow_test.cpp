// Observing changes no bit of the real models either, whatever is observed.
#include <gtest/gtest.h>

#include "assay/score.h"
#include "assay/trace.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace assay {
namespace {

void expect_same(const std::filesystem::path& path, const ContextOptions& options) {
  const auto model = Model::load(path.string());
  const std::vector<TokenId> ids =
      model->tokenizer()->encode("The sea, the sea: 12345 waves\n\n\tand no end of it. \xE6\xB5\xB7");
  const test::TempFolder folder;
  Context context(model, options);
  const Score expected = score(context, ids, 1);
  const Trace whole = trace_run(context, ids, {.histogram = true, .dump_path = folder / "a.dump"});
  EXPECT_EQ(whole.logits_digest, expected.logits_digest);
  EXPECT_EQ(whole.kv_digest, expected.kv_digest);
  const Trace part = trace_run(context, ids, {.ops = ".*\\.attention|output", .n_first = 0});
  EXPECT_EQ(part.logits_digest, expected.logits_digest);
  EXPECT_EQ(part.kv_digest, expected.kv_digest);
  EXPECT_LT(part.ops.size(), whole.ops.size());
  for (const OpTrace& op : whole.ops) EXPECT_EQ(op.n_nan + op.n_infinite, 0) << op.op;
}

TEST(TraceSlow, ObservingChangesNoBitOfSmolLm2) {
  ASSAY_REQUIRE_FILE(test::smollm2());
  ContextOptions options;
  options.n_ctx = 256;
  expect_same(test::smollm2(), options);
  options.numerics = Numerics::f32;
  options.n_ubatch = options.n_outputs_max = 7;
  options.cache_k = options.cache_v = KvType::q8_0;
  expect_same(test::smollm2(), options);
}

TEST(TraceSlow, ObservingChangesNoBitOfGemma3) {
  ASSAY_REQUIRE_FILE(test::gemma3());
  ContextOptions options;
  options.n_ctx = 256;
  options.activation_bits = 8;
  expect_same(test::gemma3(), options);
}

}  // namespace
}  // namespace assay
