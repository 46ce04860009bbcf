// What only shows beyond the edge of a window as long as real models have it: the full probes reach
// that edge, the quick ones say that they do not.
#include <gtest/gtest.h>

#include "assay/error.h"
#include "assay/verify.h"
#include "base/thread_pool.h"
#include "faulty/faulty_subject.h"
#include "support/temp_folder.h"
#include "verify/stages/stages.h"

namespace assay::faults {
namespace {

ModelSpec long_window() {
  ModelSpec spec = gemma();
  spec.n_ctx = 1024;
  spec.window = 512;
  return spec;
}

class WindowEdge : public testing::Test {
 protected:
  WindowEdge() {
    ModelFile(long_window()).write(path_);
    model_ = Model::load(path_);
  }
  verify::Subject subject(Fault fault) const {
    Row row{.id = "edge", .source = "", .what = "", .injected = ""};
    row.model = long_window;
    row.fault = fault;
    return faulty_subject(row, model_);
  }

  test::TempFolder folder_;
  std::string path_ = (folder_ / "model.gguf").string();
  std::shared_ptr<const Model> model_;
  base::ThreadPool pool_{2};
  verify::StageRun run_{pool_};
};

TEST_F(WindowEdge, FullProbesGoBeyondIt) {
  const verify::OpsFindings found = check_ops(subject(Fault::window_plus_one), run_);
  EXPECT_EQ(found.stage.verdict, Verdict::fail) << found.stage.summary;
  ASSERT_TRUE(found.first_failure);
  EXPECT_EQ(found.first_failure->op, "blk.0.attention");
  EXPECT_GE(found.first_failure->position, 512);
  ASSERT_FALSE(found.causes.empty());
  EXPECT_EQ(found.causes[0].id, "attention_window");
  const verify::OpsFindings healthy = check_ops(subject(Fault::none), run_);
  EXPECT_EQ(healthy.stage.verdict, Verdict::pass) << healthy.stage.summary;
  EXPECT_NE(healthy.stage.summary.find(" 528 tokens"), std::string::npos) << healthy.stage.summary;
  EXPECT_EQ(healthy.stage.summary.find("not reached"), std::string::npos) << healthy.stage.summary;
}

TEST_F(WindowEdge, QuickProbesSayWhatTheyDoNotReach) {
  run_.quick = true;
  const verify::OpsFindings found = check_ops(subject(Fault::window_plus_one), run_);
  EXPECT_EQ(found.stage.verdict, Verdict::pass) << found.stage.summary;
  EXPECT_NE(found.stage.summary.find("; the edge of windows of 512 positions is not reached"), std::string::npos)
      << found.stage.summary;
}

TEST_F(WindowEdge, APromptIsRunWhole) {
  run_.quick = true;
  while (verify::prompt_size(subject(Fault::none), run_) <= 528) run_.prompt += "1234567890";
  const verify::OpsFindings found = check_ops(subject(Fault::window_plus_one), run_);
  EXPECT_EQ(found.stage.verdict, Verdict::fail) << found.stage.summary;
  ASSERT_TRUE(found.first_failure);
  EXPECT_EQ(found.first_failure->op, "blk.0.attention");
}

TEST_F(WindowEdge, APromptLongerThanTheContextIsRefused) {
  VerifyOptions options;
  options.quick = true;
  options.context.n_threads = 1;
  options.on_stage = [](const VerifyStage&) { FAIL() << "before the first stage"; };
  options.prompt = std::string(1100, '1');
  try {
    verify_model(path_, options);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::bad_request);
    const std::string text = error.what();
    EXPECT_NE(text.find("1024"), std::string::npos) << text;
    EXPECT_NE(text.find("found 11"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace assay::faults
