#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "assay/error.h"
#include "assay/imatrix_run.h"
#include "assay/perplexity.h"
#include "gguf/file.h"
#include "support/invariance.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kChunk = 8, kChunks = 23;

class CollectTest : public ::testing::Test {
 protected:
  CollectTest() {
    test::TinyLlamaWriter(spec_).file().write(folder_ / "tiny.gguf");
    model_ = Model::load((folder_ / "tiny.gguf").string(), {.tokenizer = false});
    ids_ = test::random_tokens(kChunk * kChunks + 3, 96);
    options_.n_chunk = kChunk;
    options_.dataset = "text";
  }
  ImatrixResult collect(int n_threads, int64_t n_ubatch) const {
    ContextOptions options;
    options.n_ctx = 16;
    options.n_threads = n_threads;
    options.n_ubatch = n_ubatch;
    Context context(model_, options);
    return collect_imatrix(context, ids_, options_);
  }
  std::string refusal() const {
    try {
      collect(1, 8);
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Errc::bad_request);
      return e.what();
    }
    return "nothing was thrown";
  }
  static void expect_same(const Imatrix& a, const Imatrix& b) {
    EXPECT_EQ(a.n_chunks, b.n_chunks);
    EXPECT_EQ(a.datasets, b.datasets);
    ASSERT_EQ(a.entries.size(), b.entries.size());
    for (size_t i = 0; i < a.entries.size(); ++i) {
      EXPECT_EQ(a.entries[i].name, b.entries[i].name);
      EXPECT_EQ(a.entries[i].sums, b.entries[i].sums) << a.entries[i].name;
      EXPECT_EQ(a.entries[i].counts, b.entries[i].counts);
    }
  }

  test::TempFolder folder_;
  test::TinyLlama spec_;
  std::shared_ptr<const Model> model_;
  std::vector<TokenId> ids_;
  ImatrixOptions options_;
};

// The input of the first layer's queries, worked out from the file: the norm of the embeddings.
TEST_F(CollectTest, SumsTheSquaresOfTheInput) {
  const ImatrixResult found = collect(1, 8);
  EXPECT_EQ(found.imatrix.n_chunks, kChunks);
  EXPECT_EQ(found.imatrix.chunk_size, kChunk);
  const gguf::File file = gguf::File::open(folder_ / "tiny.gguf");
  const auto floats = [&](std::string_view name) {
    return reinterpret_cast<const float*>(file.find(name)->view.data.data());
  };
  const float *embeddings = floats("token_embd.weight"), *norm = floats("blk.0.attn_norm.weight");
  std::vector<double> expected(spec_.d_model);
  for (int64_t t = 0; t < kChunk * kChunks; ++t) {
    const float* x = embeddings + static_cast<int64_t>(ids_[static_cast<size_t>(t)]) * spec_.d_model;
    double squares = 0;
    for (size_t i = 0; i < spec_.d_model; ++i) squares += double{x[i]} * x[i];
    const double scale = 1 / std::sqrt(squares / spec_.d_model + 1e-5);
    for (size_t i = 0; i < spec_.d_model; ++i) expected[i] += std::pow(x[i] * scale * norm[i], 2);
  }
  const ImatrixEntry* q = found.imatrix.find("blk.0.attn_q.weight");
  ASSERT_NE(q, nullptr);
  ASSERT_EQ(q->sums.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(q->sums[i], expected[i], 1e-5 * expected[i]) << i;
  EXPECT_EQ(found.imatrix.find("blk.0.attn_v.weight")->sums, q->sums);
}

TEST_F(CollectTest, HasAnEntryForEachMatrixOfTheBlocks) {
  const ImatrixResult found = collect(1, 8);
  std::vector<std::string> expected;
  for (const char* layer : {"blk.0.", "blk.1."}) {
    for (const char* weight : {"attn_k", "attn_output", "attn_q", "attn_v", "ffn_down", "ffn_gate", "ffn_up"})
      expected.push_back(std::string(layer).append(weight).append(".weight"));
  }
  std::vector<std::string> names;
  for (const ImatrixEntry& entry : found.imatrix.entries) {
    names.push_back(entry.name);
    EXPECT_EQ(entry.counts, (std::vector<float>{kChunk * kChunks})) << entry.name;
    EXPECT_EQ(entry.n_columns(), entry.name.ends_with("ffn_down.weight") ? 512 : 256);
  }
  EXPECT_EQ(names, expected);
  options_.process_output = true;
  EXPECT_NE(collect(1, 8).imatrix.find("output.weight"), nullptr);
}

TEST_F(CollectTest, ThreadsAndChunksChangeNoBit) {
  const ImatrixResult found = collect(1, 8);
  expect_same(collect(2, 3).imatrix, found.imatrix);
  expect_same(collect(2, 1).imatrix, found.imatrix);
}

TEST_F(CollectTest, GoesOnToTheSameBytes) {
  std::vector<int64_t> saved;
  options_.on_save = [&](const Imatrix& so_far) { saved.push_back(so_far.n_chunks); };
  const ImatrixResult whole = collect(1, 8);
  EXPECT_EQ(saved, (std::vector<int64_t>{10, 20, 23}));
  options_.on_save = {};
  int64_t n_done = 0;
  options_.progress = [&](int64_t done, int64_t total, double) {
    EXPECT_EQ(total, kChunks);
    n_done = done;
  };
  options_.cancelled = [&] { return n_done == 14; };
  const ImatrixResult part = collect(1, 8);
  EXPECT_TRUE(part.cancelled);
  EXPECT_EQ(part.imatrix.n_chunks, 10);
  options_.cancelled = {};
  options_.resumed = &part.imatrix;
  expect_same(collect(2, 8).imatrix, whole.imatrix);
  Imatrix other = part.imatrix;
  other.entries[3].name = "blk.0.other.weight";
  options_.resumed = &other;
  EXPECT_THAT(refusal(), HasSubstr("is of another model: blk.0.other.weight"));
  options_.resumed = &part.imatrix;
  options_.n_chunk = 4;
  EXPECT_THAT(refusal(), HasSubstr("has chunks of 8 tokens; 4 are asked for"));
}

TEST_F(CollectTest, TellsThePerplexityAlongside) {
  const ImatrixResult found = collect(1, 8);
  ContextOptions options;
  options.n_ctx = 16;
  options.n_threads = 1;
  Context context(model_, options);
  PerplexityOptions asked;
  asked.n_chunk = kChunk;
  EXPECT_NEAR(found.perplexity, perplexity(context, nullptr, ids_, asked).perplexity, 1e-9 * found.perplexity);
}

// Of models with experts: every token goes to so many of them with the row that the router reads, so their sums and
// counts add up to the router's.
TEST(CollectExperts, RowsAndCountsAddUpToTheRouters) {
  for (const char* name : {"qwen3moe", "mixtral", "gptoss", "llama4", "deepseek2-lite"}) {
    const std::string path = test::shared(std::string("goldens/arch/") + name + ".gguf").string();
    ASSAY_REQUIRE_FILE(path);
    const auto model = Model::load(path, {.tokenizer = false});
    const std::vector<TokenId> ids = test::random_tokens(45, static_cast<int32_t>(model->vocab_size()));
    ImatrixOptions options;
    options.n_chunk = kChunk;
    const auto collect = [&](int n_threads, int64_t n_ubatch) {
      ContextOptions context_options;
      context_options.n_ctx = 16;
      context_options.n_threads = n_threads;
      context_options.n_ubatch = n_ubatch;
      Context context(model, context_options);
      return collect_imatrix(context, ids, options).imatrix;
    };
    const Imatrix found = collect(1, 8), other = collect(2, 3);
    int n_checked = 0;
    for (size_t i = 0; i < found.entries.size(); ++i) {
      const ImatrixEntry& e = found.entries[i];
      EXPECT_EQ(other.entries[i].sums, e.sums) << name << " " << e.name;
      EXPECT_EQ(other.entries[i].counts, e.counts) << name << " " << e.name;
      if (!e.name.ends_with("_exps.weight")) continue;
      const std::string block = e.name.substr(0, e.name.find("ffn_"));
      const ImatrixEntry* router = found.find(block + "ffn_gate_inp.weight");
      ASSERT_NE(router, nullptr) << name << " " << e.name;
      float n_rows = 0;
      for (const float count : e.counts) n_rows += count;
      const float n_used = n_rows / router->counts[0];
      EXPECT_EQ(n_used, std::round(n_used)) << name << " " << e.name;
      EXPECT_GT(e.counts.size(), 1u);
      ++n_checked;
      if (e.name.ends_with("down_exps.weight") || std::string(name) == "llama4")
        continue;  // these multiply something else
      for (int64_t column = 0; column < e.n_columns(); ++column) {
        double sum = 0;
        for (size_t expert = 0; expert < e.counts.size(); ++expert)
          sum += e.sums[expert * static_cast<size_t>(e.n_columns()) + static_cast<size_t>(column)];
        const double expected = double{n_used} * router->sums[static_cast<size_t>(column)];
        ASSERT_NEAR(sum, expected, 1e-4 * expected + 1e-9) << name << " " << e.name << " column " << column;
      }
    }
    EXPECT_GE(n_checked, 2) << name;
  }
}

TEST_F(CollectTest, Refusals) {
  options_.n_chunk = 100;
  EXPECT_THAT(refusal(), HasSubstr("100 tokens: the context has 16"));
  options_.n_chunk = 3;
  EXPECT_THAT(refusal(), HasSubstr("at least 4"));
  options_.n_chunk = 16;
  ids_.resize(31);
  EXPECT_THAT(refusal(), HasSubstr("two chunks of 16 are needed"));
}

}  // namespace
}  // namespace assay
