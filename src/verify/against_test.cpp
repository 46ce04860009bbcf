// verify --against: healthy sources pass, a wrong one is named with its place, and sources that
// promise equal bits are held to it.
#include "verify/against.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "assay/error.h"
#include "engine/model_state.h"
#include "support/dump_run.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay::verify {
namespace {

using testing::Contains;
using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::Not;

const std::vector<int32_t> kIds = {3, 1, 4, 1, 5, 9, 2, 6};

class AgainstTest : public testing::Test {
 protected:
  AgainstTest() { options_.n_threads = 2; }

  void load(const std::string& path) {
    model_ = Model::load(path, {.tokenizer = false});
    subject_ = own_subject(model_, options_);
    run_.header = test::header_of(plan(), subject_.declared);
    run_.batches = test::batches_of(kIds, 5);
  }
  void load_tiny(tensor::DType dtype = tensor::DType::Q4_0, uint64_t seed = 1) {
    test::TinyLlama spec;
    spec.dtype = dtype;
    spec.d_model = 64;
    spec.d_ff = 96;
    spec.head_dim = 16;
    spec.seed = seed;
    const auto path = folder_ / ("tiny" + std::to_string(seed) + ".gguf");
    test::TinyLlamaWriter(spec).file().write(path);
    load(path.string());
  }
  const ops::Plan& plan() const { return model_->state().built.plan; }

  std::string dump(const std::string& name = "run.dump") {
    const std::string path = (folder_ / name).string();
    const auto executor = subject_.make_executor(16, 8, 1);
    test::dump_run(path, run_, *executor);
    return path;
  }

  AgainstFindings against(const std::vector<std::string>& sources) {
    return check_against(subject_, options_, sources, {pool_});
  }

  static void expect_pass(const AgainstFindings& found, size_t n_sources) {
    EXPECT_EQ(found.stage.verdict, Verdict::pass) << found.stage.summary;
    EXPECT_EQ(found.sources.size(), n_sources);
    EXPECT_THAT(found.sources, Each(Field(&SourceFigures::outlier, false)));
    for (const SourceFigures& source : found.sources) {
      EXPECT_GE(source.ops.size(), 30u) << source.name;
      EXPECT_GE(source.logits_error, 0) << source.name;
      EXPECT_LT(source.logits_error, 0.05) << source.name;
    }
  }

  test::TempFolder folder_;
  ContextOptions options_;
  std::shared_ptr<const Model> model_;
  Subject subject_;
  test::DumpRun run_;
  base::ThreadPool pool_{2};
};

TEST_F(AgainstTest, ADumpOfOurOwnRunPasses) {
  for (const tensor::DType dtype : {tensor::DType::F32, tensor::DType::F16, tensor::DType::Q4_1}) {
    load_tiny(dtype);
    expect_pass(against({dump()}), 2);
  }
}

TEST_F(AgainstTest, LlamaCppOnTheTinyModelsStaysWithinItsBounds) {
  for (const char* name : {"llama", "gemma3"}) {
    const auto model = test::shared(std::string("goldens/tiny/") + name + ".gguf");
    ASSAY_REQUIRE_FILE(model);
    load(model.string());
    const AgainstFindings found = against({test::data(std::string("dumps/llama.cpp-tiny-") + name + ".dump").string()});
    expect_pass(found, 2);
    EXPECT_THAT(found.sources[1].name, HasSubstr("llama.cpp 0.5.0"));
    EXPECT_LT(found.sources[1].logits_error, 0.005);
  }
}

// The same dump, saying something else of its rounding.
void declare(const std::string& from, const std::string& to, const std::function<void(trace::Declared&)>& change) {
  trace::DumpReader reader(from);
  trace::DumpHeader header = reader.header();
  change(header.declared);
  trace::DumpWriter writer(to, header);
  for (auto kind = reader.next(); kind != trace::DumpReader::Kind::end; kind = reader.next()) {
    if (kind == trace::DumpReader::Kind::batch) {
      const trace::DumpBatch& batch = reader.batch();
      writer.begin_batch({batch.tokens, batch.positions, batch.sequences, batch.outputs});
    } else {
      const trace::DumpTensor& tensor = reader.tensor();
      writer.add(tensor.op, tensor.n_rows, tensor.width, tensor.values, tensor.is_f64);
    }
  }
  writer.finish();
}

TEST_F(AgainstTest, ARoundingThatIsNotDeclaredIsFoundInItsOp) {
  const auto model = test::shared("goldens/tiny/gemma3.gguf");
  ASSAY_REQUIRE_FILE(model);
  load(model.string());
  const std::string right = test::data("dumps/llama.cpp-tiny-gemma3.dump").string(),
                    changed = (folder_ / "changed.dump").string();
  const auto first_wrong = [&](const std::function<void(trace::Declared&)>& change) {
    declare(right, changed, change);
    const AgainstFindings found = against({changed});
    return found.sources[1].first_failure ? found.sources[1].first_failure->op : "none";
  };
  EXPECT_EQ(first_wrong([](trace::Declared&) {}), "none");
  EXPECT_EQ(first_wrong([](trace::Declared& d) { d.gelu_table_f16 = false; }), "blk.0.ffn_act");
  EXPECT_EQ(first_wrong([](trace::Declared& d) { d.cache_k = d.cache_v = ops::CacheType::f32; }), "blk.0.attention");
}

TEST_F(AgainstTest, TransformersOnItsSmallModelsStaysWithinItsBounds) {
  for (const std::string name : {"llama", "gemma3"}) {
    load(test::data("dumps/" + name + ".gguf").string());
    const AgainstFindings found = against({test::data("dumps/" + name + ".dump").string(), "oracle"});
    expect_pass(found, 3);
    EXPECT_THAT(found.sources[1].name, HasSubstr("transformers"));
    EXPECT_LT(found.sources[1].logits_error, 1e-5);
  }
}

TEST_F(AgainstTest, OurModesPassAndThoseOfTheSameNumericsHaveTheSameBits) {
  load_tiny();
  const AgainstFindings found = against({"reference", "avx2", "chunks/1", "chunks/3", "exact/8", "f32", "oracle"});
  expect_pass(found, 8);
  EXPECT_THAT(found.stage.summary, HasSubstr("4 compared by bits"));
  EXPECT_LT(found.sources.back().logits_error, 1e-12);
}

TEST_F(AgainstTest, AChangedValueIsNamedWithItsOpRowAndElement) {
  load_tiny();
  run_.change = [](int64_t i_batch, trace::DumpTensor& tensor) {
    if (i_batch == 1 && tensor.op == "blk.1.attn_k_rope")
      tensor.values[static_cast<size_t>(2 * tensor.width + 16 + 5)] += 0.25;
    return true;
  };
  const AgainstFindings found = against({dump()});
  EXPECT_EQ(found.stage.verdict, Verdict::fail);
  EXPECT_FALSE(found.sources[0].outlier);
  ASSERT_TRUE(found.sources[1].outlier);
  ASSERT_TRUE(found.sources[1].first_failure);
  const Place& place = *found.sources[1].first_failure;
  EXPECT_EQ(place.op, "blk.1.attn_k_rope");
  EXPECT_EQ(place.row, 2);
  EXPECT_EQ(place.position, 7);
  EXPECT_EQ(place.token, 6);
  EXPECT_EQ(place.head, 1);
  EXPECT_EQ(place.element, 5);
  EXPECT_NEAR(place.found - place.expected, 0.25, 1e-3);
  EXPECT_THAT(found.stage.details,
              Contains(HasSubstr("first outside of its bound: blk.1.attn_k_rope, position 7 (token "
                                 "6), head 1, element 5")));
}

TEST_F(AgainstTest, OfThreeSourcesTheOutlierIsNamed) {
  load_tiny();
  const std::string healthy = dump("healthy.dump");
  run_.change = [](int64_t, trace::DumpTensor& tensor) {
    if (tensor.op == "blk.0.ffn_act") std::swap(tensor.values[0], tensor.values[1]);
    return true;
  };
  const AgainstFindings found = against({healthy, dump("broken.dump"), "f32"});
  EXPECT_THAT(found.stage.summary, HasSubstr("the outlier is test 1.0 (broken.dump)"));
  EXPECT_TRUE(found.sources[2].outlier);
  EXPECT_EQ(std::count_if(found.sources.begin(), found.sources.end(), [](const SourceFigures& s) { return s.outlier; }),
            1);
}

TEST_F(AgainstTest, ADumpOfAnotherFileOfTheSameShapeIsJudgedAndNotRefused) {
  load_tiny(tensor::DType::Q4_0, 2);
  const std::string other = dump();
  load_tiny(tensor::DType::Q4_0, 1);
  const AgainstFindings found = against({other});
  EXPECT_EQ(found.stage.verdict, Verdict::fail);
  ASSERT_TRUE(found.sources[1].first_failure);
  EXPECT_EQ(found.sources[1].first_failure->op, "token_embd");
  EXPECT_THAT(found.stage.details, Contains(HasSubstr("it ran another file")));
}

TEST_F(AgainstTest, ADumpThatLacksOpsIsJudgedByWhatItHas) {
  load_tiny();
  run_.change = [](int64_t, trace::DumpTensor& tensor) {
    if (tensor.op == "blk.1.attn_q") return false;
    if (tensor.op == "blk.1.ffn_down") tensor.values[7] += 1;
    return true;
  };
  const AgainstFindings found = against({dump()});
  EXPECT_THAT(found.stage.details, Contains(HasSubstr("lacks 1 of the model's ops, the first is blk.1.attn_q")));
  ASSERT_TRUE(found.sources[1].first_failure);
  EXPECT_EQ(found.sources[1].first_failure->op, "blk.1.ffn_down");
}

TEST_F(AgainstTest, SourcesThatPromiseTheSameBitsAreHeldToIt) {
  load_tiny();
  ContextOptions eight = options_;
  eight.activation_bits = 8;
  const Subject other = own_subject(model_, eight);
  subject_.make_executor = other.make_executor;  // rounds more coarsely than it says
  const AgainstFindings found = against({"exact/15"});
  EXPECT_EQ(found.stage.verdict, Verdict::fail);
  EXPECT_THAT(found.stage.details,
              Contains(HasSubstr("promise the same bits and part first at blk.0.attn_q, position 0, element")));
}

TEST_F(AgainstTest, WhatIsNeitherFileNorModeIsRefusedWithTheModes) {
  load_tiny();
  for (const char* text : {"exact/9", "no-such.dump", ""}) {
    try {
      against({text});
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Errc::bad_request);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("exact/8, f32, oracle"), HasSubstr(text)));
    }
  }
}

TEST_F(AgainstTest, ACancelledRunSaysSo) {
  load_tiny();
  const std::vector<std::string> sources = {"f32"};
  StageRun run{pool_};
  run.cancelled = [] { return true; };
  EXPECT_EQ(check_against(subject_, options_, sources, run).stage.verdict, Verdict::skip);
}

}  // namespace
}  // namespace assay::verify
