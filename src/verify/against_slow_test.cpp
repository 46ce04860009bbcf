// llama.cpp's first layers of the real models, with their quantised weights, held against float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/shared_data.h"
#include "support/temp_folder.h"
#include "trace/dump.h"
#include "verify/against.h"

namespace assay::verify {
namespace {

struct RealDump {
  const char* name;
  std::filesystem::path model;
};

class AgainstRealDump : public testing::TestWithParam<RealDump> {};

INSTANTIATE_TEST_SUITE_P(LlamaCpp, AgainstRealDump,
                         testing::Values(RealDump{"smollm2", test::smollm2()}, RealDump{"gemma3", test::gemma3()}),
                         [](const auto& parameters) { return std::string(parameters.param.name); });

TEST_P(AgainstRealDump, StaysWithinItsBoundsAndItsRoundingIsKnown) {
  ASSAY_REQUIRE_FILE(GetParam().model);
  ContextOptions options;
  options.n_threads = 2;
  const Subject subject = own_subject(Model::load(GetParam().model.string()), options);
  base::ThreadPool pool(2);
  const std::vector<std::string> sources = {
      test::data(std::string("dumps/llama.cpp-") + GetParam().name + "-layer0.dump").string()};
  const AgainstFindings found = check_against(subject, options, sources, {pool});
  EXPECT_EQ(found.stage.verdict, Verdict::pass) << found.stage.summary;
  const SourceFigures& theirs = found.sources.at(1);
  int n_linear = 0;
  for (const OpFigures& op : theirs.ops) {
    EXPECT_EQ(op.n_outside, 0) << op.op;
    if (op.kind != "linear") continue;
    ++n_linear;
    EXPECT_GT(op.local_error, 1e-3) << op.op;  // half a step of 8 bits and more, which the first test allows for
    EXPECT_LT(op.declared_bound, 0.1 * op.bound) << op.op;
    EXPECT_LT(op.declared_error, 1e-5) << op.op;  // and which the second knows
  }
  EXPECT_EQ(n_linear, 7);
}

// The same dump, told to be of another text.
TEST(AgainstRealDumpText, ATextWhoseIdsAreOthersIsAFindingOfTheTokenizer) {
  ASSAY_REQUIRE_FILE(test::smollm2());
  const test::TempFolder folder;
  const std::string path = (folder / "other.dump").string();
  trace::DumpReader reader(test::data("dumps/llama.cpp-smollm2-layer0.dump").string());
  trace::DumpHeader header = reader.header();
  ASSERT_EQ(header.text, "Hello!");
  header.text = "Hello?";
  trace::DumpWriter writer(path, header);
  ASSERT_EQ(reader.next(), trace::DumpReader::Kind::batch);
  const trace::DumpBatch& batch = reader.batch();
  writer.begin_batch({batch.tokens, batch.positions, batch.sequences, batch.outputs});
  ASSERT_EQ(reader.next(), trace::DumpReader::Kind::tensor);
  writer.add(reader.tensor().op, reader.tensor().n_rows, reader.tensor().width, reader.tensor().values, false);
  writer.finish();

  ContextOptions options;
  options.n_threads = 2;
  const Subject subject = own_subject(Model::load(test::smollm2().string()), options);
  base::ThreadPool pool(2);
  const std::vector<std::string> sources = {path};
  const AgainstFindings found = check_against(subject, options, sources, {pool});
  EXPECT_EQ(found.stage.verdict, Verdict::fail);
  EXPECT_FALSE(found.sources.at(1).outlier);
  EXPECT_THAT(
      found.stage.summary,
      testing::HasSubstr("tokenizer: token ids differ from those of this file's tokenizer first at position 1"));
}

}  // namespace
}  // namespace assay::verify
