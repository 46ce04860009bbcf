// Which dumps are of this model, and in which order their values come.
#include "verify/dump_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "assay/error.h"
#include "engine/model_state.h"
#include "support/dump_run.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include "verify/subject.h"

namespace assay::verify {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DumpSourceTest : public testing::Test {
 protected:
  DumpSourceTest() {
    test::TinyLlama spec;
    spec.d_model = 64;
    spec.d_ff = 96;
    spec.head_dim = 16;
    test::TinyLlamaWriter(spec).file().write(folder_ / "tiny.gguf");
    ContextOptions options;
    options.n_threads = 1;
    subject_ = own_subject(Model::load((folder_ / "tiny.gguf").string(), {.tokenizer = false}), options);
    run_.header = test::header_of(plan(), subject_.declared);
    run_.batches = test::batches_of(std::vector<int32_t>{3, 1, 4, 1, 5}, 3);
  }

  const ops::Plan& plan() const { return subject_.model->state().built.plan; }

  std::string write() {
    const std::string path = (folder_ / "run.dump").string();
    const auto executor = subject_.make_executor(16, 8, 2);
    test::dump_run(path, run_, *executor);
    return path;
  }

  DumpSource examined() { return examine_dump(write(), plan()); }

  void expect_refused(Errc code, const std::string& message) {
    try {
      examined();
      FAIL() << "not refused: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.code, code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  }

  test::TempFolder folder_;
  Subject subject_;
  test::DumpRun run_;
};

// The ops handed on, in their order, of each batch, with the rows of the last one.
std::vector<std::vector<std::string>> replayed(const DumpSource& source, const ops::Plan& plan,
                                               std::vector<int64_t>* n_rows = nullptr) {
  std::vector<std::vector<std::string>> names;
  DumpSink sink;
  sink.begin = [&](const ops::Batch&) { names.emplace_back(); };
  sink.tensor = [&](const ops::Op& op, const trace::DumpTensor& tensor) {
    names.back().push_back(op.name);
    if (n_rows != nullptr) n_rows->push_back(tensor.n_rows);
  };
  sink.end = [] {};
  replay_dump(source, plan, sink);
  return names;
}

TEST_F(DumpSourceTest, TellsWhatItHas) {
  const DumpSource source = examined();
  EXPECT_EQ(source.batches.size(), 2u);
  EXPECT_EQ(source.n_ctx, 5);
  EXPECT_EQ(source.n_batch_max, 3);
  EXPECT_EQ(source.n_sequences, 1);
  EXPECT_THAT(source.lacking, ElementsAre());
}

TEST_F(DumpSourceTest, SequencesAreNumberedAsTheyAppear) {
  run_.batches = {{{3, 4}, {0, 0}, {1, 0}, {1, 1}}};
  const DumpSource source = examined();
  EXPECT_EQ(source.n_sequences, 2);
  EXPECT_THAT(source.batches[0].sequences, ElementsAre(0, 1));
}

TEST_F(DumpSourceTest, OpsThatItLacksAreNamed) {
  run_.change = [](int64_t, trace::DumpTensor& tensor) { return tensor.op != "blk.1.ffn_act"; };
  EXPECT_THAT(examined().lacking, ElementsAre("blk.1.ffn_act"));
}

TEST_F(DumpSourceTest, AnyOrderInTheFileComesOutAsThePlans) {
  const auto in_order = replayed(examined(), plan());
  ASSERT_EQ(in_order.size(), 2u);
  // The same values from a file that has each batch backwards.
  std::vector<trace::DumpTensor> tensors;
  run_.change = [&](int64_t i_batch, trace::DumpTensor& tensor) {
    if (i_batch == 0) tensors.push_back(tensor);
    return true;
  };
  write();
  trace::DumpWriter writer((folder_ / "back.dump").string(), run_.header);
  const trace::DumpBatch& batch = run_.batches[0];
  writer.begin_batch({batch.tokens, batch.positions, batch.sequences, batch.outputs});
  for (auto tensor = tensors.rbegin(); tensor != tensors.rend(); ++tensor) {
    writer.add(tensor->op, tensor->n_rows, tensor->width, tensor->values, false);
  }
  writer.finish();
  const auto back = replayed(examine_dump((folder_ / "back.dump").string(), plan()), plan());
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0], in_order[0]);
}

TEST_F(DumpSourceTest, RowsWithoutLogitsAreTakenOutWhereTheEngineComputedAll) {
  run_.change = [](int64_t, trace::DumpTensor& tensor) { return tensor.op == "output"; };
  const std::string path = write();
  trace::DumpWriter writer((folder_ / "all.dump").string(), run_.header);
  trace::DumpReader reader(path);
  ASSERT_EQ(reader.next(), trace::DumpReader::Kind::batch);
  ASSERT_EQ(reader.next(), trace::DumpReader::Kind::tensor);
  const trace::DumpBatch& batch = run_.batches[0];
  const std::vector<uint8_t> last_only = {0, 0, 1};
  writer.begin_batch({batch.tokens, batch.positions, batch.sequences, last_only});
  writer.add("output", 3, reader.tensor().width, reader.tensor().values, false);
  writer.finish();
  std::vector<int64_t> n_rows;
  replayed(examine_dump((folder_ / "all.dump").string(), plan()), plan(), &n_rows);
  EXPECT_THAT(n_rows, ElementsAre(1));
}

TEST_F(DumpSourceTest, OtherShapesAreRefusedByName) {
  const trace::DumpHeader right = run_.header;
  run_.header.n_layers = 3;
  expect_refused(Errc::bad_request, "its number of layers needs to be 2, found 3");
  run_.header = right;
  run_.header.d_model = 128;
  expect_refused(Errc::bad_request, "d_model needs to be 64, found 128");
  run_.header = right;
  run_.header.vocab_size = 97;
  expect_refused(Errc::bad_request, "vocab_size needs to be 96, found 97");
}

TEST_F(DumpSourceTest, OtherOpsAndWidthsAreRefusedByName) {
  run_.change = [](int64_t, trace::DumpTensor& tensor) {
    if (tensor.op == "blk.1.ffn_act") tensor.op = "blk.1.ffn_moe";
    return true;
  };
  expect_refused(Errc::bad_request, "'blk.1.ffn_moe' is no op of this one");
  run_.change = [](int64_t, trace::DumpTensor& tensor) {
    if (tensor.op == "blk.0.ffn_act") {
      tensor.width = 95;
      tensor.values.resize(static_cast<size_t>(tensor.n_rows * tensor.width));
    }
    return true;
  };
  expect_refused(Errc::bad_request, "the width of blk.0.ffn_act needs to be 96, found 95");
  run_.change = [](int64_t, trace::DumpTensor& tensor) {
    if (tensor.op == "blk.0.attn_k") tensor.op = "blk.0.attn_v";
    return true;
  };
  expect_refused(Errc::bad_request, "blk.0.attn_v needs to be once in a batch");
  run_.change = [](int64_t, trace::DumpTensor&) { return false; };
  expect_refused(Errc::bad_request, "at least one batch with values");
}

TEST_F(DumpSourceTest, ACutFileIsRefusedBeforeAnyValueIsJudged) {
  const std::string path = write();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THROW(examine_dump(path, plan()), Error);
}

TEST_F(DumpSourceTest, AFileThatChangesMeanwhileIsRefused) {
  const DumpSource source = examined();
  run_.batches = test::batches_of(std::vector<int32_t>{3, 1, 4, 1, 5},
                                  2);  // three batches where two were examined
  write();
  EXPECT_THROW(replayed(source, plan()), Error);
  run_.batches = test::batches_of(std::vector<int32_t>{3, 1, 4, 1, 5}, 3);
  run_.change = [](int64_t i_batch, trace::DumpTensor& tensor) { return i_batch == 0 || tensor.op != "token_embd"; };
  write();
  EXPECT_THROW(replayed(source, plan()), Error);
}

}  // namespace
}  // namespace assay::verify
