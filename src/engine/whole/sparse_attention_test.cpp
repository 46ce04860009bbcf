// Models that choose the keys they attend to: on several executors, forked and cut with the bits of one run; where
// everything is chosen the bits of plain attention; layers that share a choice; what their keys must not say.
#include "ops/attention/sparse_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "assay/context.h"
#include "assay/error.h"
#include "backend/cpu/runtime/cpu_executor.h"
#include "backend/oracle/oracle_executor.h"
#include "engine/executors/split_executor.h"
#include "engine/model_state.h"
#include "ops/attention/attention.h"
#include "ops/attention/choose_keys.h"
#include "support/engine/cpu_shards.h"
#include "support/engine/executor_runs.h"
#include "support/gguf_edit.h"
#include "support/golden_run.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace assay::engine {
namespace {

using test::options_of, test::run_all, test::Seen;
using ::testing::HasSubstr;

std::string sparse_golden(const std::string& name) { return test::shared("goldens/arch/" + name + ".gguf").string(); }
std::string sparse_key(const std::string& name, const char* of) {
  return (name == "glmdsa" ? "glm-dsa." : name == "minimaxm3-blocks" ? "minimax-m3." : "deepseek32.") + std::string(of);
}

using Add = std::function<void(test::GgufWriter& file, const gguf::File& source)>;
std::shared_ptr<const Model> edited_model(const std::string& name, const std::set<std::string>& without,
                                          const Add& add) {
  const test::TempFolder folder;
  const gguf::File source = gguf::File::open(sparse_golden(name));
  test::GgufWriter file = test::edited_copy(source, without);
  if (add) add(file, source);
  file.write(folder / "edited.gguf");
  return Model::load((folder / "edited.gguf").string(), {.tokenizer = false});
}
std::shared_ptr<const Model> with_top_k(const std::string& name, uint32_t top_k) {
  const std::string of = sparse_key(name, "attention.indexer.top_k");
  return edited_model(name, {of}, [&](test::GgufWriter& file, const gguf::File&) { file.set(of, top_k); });
}
std::string failure_of(const std::string& name, const std::set<std::string>& without, const Add& add) {
  try {
    edited_model(name, without, add);
  } catch (const Error& error) {
    return error.what();
  }
  return "loaded";
}

struct OneRun {
  std::vector<double> logits;
  std::string cache;
  friend bool operator==(const OneRun&, const OneRun&) = default;
};
OneRun run_ids(const std::shared_ptr<const Model>& model, const std::vector<int32_t>& ids,
               const ContextOptions& options) {
  Context context(model, options);
  OneRun found;
  context.decode_all(ids, [&](int64_t, std::span<const double> logits) {
    found.logits.insert(found.logits.end(), logits.begin(), logits.end());
  });
  found.cache = context.kv_digest();
  return found;
}
ContextOptions options_for(Kernels kernels, int threads, int64_t ubatch) {
  ContextOptions options;
  options.kernels = kernels, options.n_threads = threads, options.n_ubatch = ubatch, options.n_ctx = 320;
  return options;
}
std::vector<int32_t> many_ids(int64_t n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i * 97 + i * i * 13 + 5) % 320);
  return ids;
}

// Choices of one key, of more than a page and a segment hold: one digest whatever the setting.
TEST(SparseModels, HaveOneDigestWhateverTheSetting) {
  ASSAY_REQUIRE_FILE(sparse_golden("deepseek32"));
  for (const char* name : {"deepseek32", "glmdsa", "minimaxm3-blocks"}) {
    for (const auto& [top_k, n_tokens] :
         {std::pair(1u, 70), std::pair(8u, 70), std::pair(100u, 140), std::pair(260u, 280)}) {
      if (n_tokens > 200 && std::string(name) != "deepseek32") continue;  // one long run is enough
      const std::vector<int32_t> ids = many_ids(n_tokens);
      const auto model = with_top_k(name, top_k);
      const OneRun plain = run_ids(model, ids, options_for(Kernels::reference, 1, n_tokens));
      for (const auto& [threads, ubatch] : {std::pair(2, 7), std::pair(3, 1)}) {
        EXPECT_TRUE(plain == run_ids(model, ids, options_for(Kernels::best, threads, ubatch)))
            << name << ", " << top_k << ", " << threads << " threads, chunks of " << ubatch;
      }
    }
  }
}

// A plan whose layers attend to everything.
ops::Plan all_attended(const ops::Plan& of) {
  ops::Plan plan = of;
  for (ops::Op& op : plan.ops) {
    if (const auto* s = op.as<ops::SparseAttention>())
      op.record = ops::Attention{s->q, s->layer, s->n_heads, s->n_kv_heads, s->head_dim, s->scale, 0, s->y};
  }
  return plan;
}

TEST(SparseModels, ThatChooseEverythingHaveTheBitsOfPlainAttention) {
  ASSAY_REQUIRE_FILE(sparse_golden("deepseek32"));
  base::ThreadPool pool(2);
  for (const char* name : {"deepseek32", "glmdsa", "minimaxm3-blocks"}) {
    const bool by_blocks = std::string(name) == "minimaxm3-blocks";
    const auto all = with_top_k(name, 48), few = with_top_k(name, by_blocks ? 1 : 5);
    for (const Kernels set : {Kernels::reference, backend::cpu::best_kernel_set()}) {
      const ops::ExecutorOptions options = options_of(ops::CacheType::f16, false, 2);
      const auto seen = [&](const ops::Plan& plan) {
        return run_all(*backend::cpu::make_cpu_executor(plan, options, {set}, pool), false);
      };
      EXPECT_TRUE(seen(all->state().built.plan) == seen(all_attended(all->state().built.plan))) << name;
      EXPECT_FALSE(seen(few->state().built.plan).logits == seen(all_attended(few->state().built.plan)).logits)
          << name << ": the choice has no effect";
    }
  }
}

TEST(SparseModels, OnSeveralExecutorsHaveTheBitsOfOne) {
  ASSAY_REQUIRE_FILE(sparse_golden("deepseek32"));
  base::ThreadPool pool(2);
  const auto best = backend::cpu::best_kernel_set();
  for (const char* name : {"deepseek32", "glmdsa", "minimaxm3-blocks"}) {
    const auto model = with_top_k(name, std::string(name) == "minimaxm3-blocks" ? 1 : 6);
    const ops::Plan& plan = model->state().built.plan;
    for (const bool as_f32 : {false, true}) {
      const ops::ExecutorOptions options = options_of(as_f32 ? ops::CacheType::f32 : ops::CacheType::f16, as_f32, 2);
      const Seen expected = run_all(*backend::cpu::make_cpu_executor(plan, options, {best}, pool), true);
      const auto make = [&](const ops::Plan& part, int i) {
        return backend::cpu::make_cpu_executor(part, options, {i == 0 ? Kernels::reference : best}, pool);
      };
      EXPECT_TRUE(run_all(*make_split_executor(plan, options, std::vector<int32_t>{1}, make), true) == expected)
          << name << " in two parts";
      test::CpuShards shards(plan, options, 2, best);
      EXPECT_TRUE(run_all(*shards, true) == expected) << name << " in two shards";
    }
  }
}

// What a fork goes on with, and what pages bring back: keys, values and index keys.
TEST(SparseModels, ForksAndPagesKeepIndexKeys) {
  ASSAY_REQUIRE_FILE(sparse_golden("deepseek32"));
  base::ThreadPool pool(1);
  const auto model = with_top_k("deepseek32", 20);
  const ops::Plan& plan = model->state().built.plan;
  ops::ExecutorOptions options = options_of(ops::CacheType::f16, false, 2);
  options.n_ctx = 200, options.n_batch_max = 200, options.n_sequences = 3;
  const std::vector<int32_t> ids = many_ids(140);
  const auto executor = backend::cpu::make_cpu_executor(plan, options, {}, pool);
  const auto feed = [&](int sequence, int64_t begin, int64_t end) {
    std::vector<int32_t> positions(static_cast<size_t>(end - begin));
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(begin));
    const std::vector<int32_t> sequences(positions.size(), sequence);
    std::vector<uint8_t> outputs(positions.size(), 0);
    outputs.back() = 1;
    executor->run(
        {std::span(ids).subspan(static_cast<size_t>(begin), positions.size()), positions, sequences, outputs});
    return std::vector<float>(executor->logits(0).begin(), executor->logits(0).end());
  };
  const std::vector<float> expected = feed(0, 0, 140);
  ASSERT_TRUE(executor->fork(0, 100, 1));
  EXPECT_EQ(feed(1, 100, 140), expected);
  std::vector<std::byte> image(executor->pages().page_bytes);
  ASSERT_TRUE(executor->read_page(0, 0, image));
  ASSERT_TRUE(executor->append_page(2, 64, image));
  EXPECT_EQ(feed(2, 64, 140), expected);
  executor->truncate(0, 30);
  EXPECT_EQ(feed(0, 30, 140), expected);
}

// Layer 1 without an indexer attends to what layer 0 chose, whether the file's flags say so or its tensors alone.
TEST(SparseModels, ALayerWithoutAnIndexerSharesTheChoiceBefore) {
  ASSAY_REQUIRE_FILE(sparse_golden("glmdsa"));
  const std::set<std::string> of_layer_1 = {"blk.1.indexer.k_norm.bias", "blk.1.indexer.k_norm.weight",
                                            "blk.1.indexer.proj.weight", "blk.1.indexer.attn_k.weight",
                                            "blk.1.indexer.attn_q_b.weight"};
  const std::string types = "glm-dsa.attention.indexer.types";
  std::set<std::string> without = of_layer_1;
  without.insert(types);
  const auto flagged = edited_model("glmdsa", without, [&](test::GgufWriter& file, const gguf::File&) {
    file.set(types, std::vector<bool>{true, false});
  });
  const auto unflagged = edited_model("glmdsa", without, {});
  const ops::Plan& plan = flagged->state().built.plan;
  std::vector<const ops::SparseAttention*> found;
  for (const ops::Op& op : plan.ops) {
    if (const auto* sparse = op.as<ops::SparseAttention>()) found.push_back(sparse);
  }
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0]->chosen, found[1]->chosen);
  EXPECT_EQ(plan.cache_layers.size(), 3u);
  const std::vector<int32_t> ids = many_ids(60);
  const OneRun plain = run_ids(flagged, ids, options_for(Kernels::reference, 1, 60));
  EXPECT_TRUE(plain == run_ids(flagged, ids, options_for(Kernels::best, 2, 7)));
  EXPECT_TRUE(plain == run_ids(unflagged, ids, options_for(Kernels::best, 3, 1)));
  base::ThreadPool pool(1);
  const ops::ExecutorOptions options = options_of(ops::CacheType::f16, false, 2);
  const auto make = [&](const ops::Plan& part, int) {
    return backend::cpu::make_cpu_executor(part, options, {}, pool);
  };
  try {
    make_split_executor(plan, options, std::vector<int32_t>{1}, make);
    FAIL() << "a choice that both parts need was split off";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("needs one value of all tokens to hand over, found 2"));
  }
  EXPECT_THAT(failure_of("glmdsa", {types},
                         [&](test::GgufWriter& file, const gguf::File&) {
                           file.set(types, std::vector<bool>{false, true});
                         }),
              HasSubstr(types + ": layer 0 has no indexer"));
  EXPECT_THAT(failure_of("glmdsa", {types},
                         [&](test::GgufWriter& file, const gguf::File&) { file.set(types, std::vector<bool>{true}); }),
              HasSubstr(types + ": needs 2 values"));
  EXPECT_THAT(failure_of("deepseek32", of_layer_1, {}), HasSubstr("blk.1.indexer."));  // whose layers all have one
}

TEST(SparseModels, OfBlocksWhatCannotBeIsNamed) {
  const std::string name = "minimaxm3-blocks";
  ASSAY_REQUIRE_FILE(sparse_golden(name));
  const auto expect_named = [&](const char* key, uint32_t value, const std::string& named) {
    const std::string of = sparse_key(name, key);
    EXPECT_THAT(failure_of(name, {of}, [&](test::GgufWriter& file, const gguf::File&) { file.set(of, value); }),
                HasSubstr(named.empty() ? of : named))
        << value;
  };
  expect_named("attention.indexer.head_count", 0, "");
  expect_named("attention.indexer.head_count", 4, "head_count = 4: needs one for each of 2 KV heads");
  expect_named("attention.indexer.key_length", 8, "");  // fewer than turn
  expect_named("attention.indexer.key_length", 64, "blk.1.indexer.q_proj.weight: needs 128 x 64");
  expect_named("attention.indexer.block_size", 0, "");
  expect_named("attention.indexer.local_blocks", 4, "");  // more than are chosen
  for (const char* tensor : {"blk.1.indexer.k_proj.weight", "blk.1.indexer.q_norm.weight"})
    EXPECT_THAT(failure_of(name, {tensor}, {}), HasSubstr(tensor));
}

TEST(SparseModels, WhatCannotBeIsNamed) {
  ASSAY_REQUIRE_FILE(sparse_golden("deepseek32"));
  const std::string heads = "attention.indexer.head_count", length = "attention.indexer.key_length",
                    top_k = "attention.indexer.top_k";
  struct Bad {
    std::string key;
    uint32_t value;
    std::string named;  // empty: the key
  };
  const Bad all[] = {{heads, 0, ""},
                     {heads, 5000, ""},
                     {heads, 7, "blk.0.indexer.attn_q_b.weight: needs 448 x 24"},
                     {length, 0, ""},
                     {length, 4, ""},
                     {length, 65537, ""},
                     {length, 32, "blk.0.indexer.attn_q_b.weight: needs 256 x 24"},
                     {top_k, 0, ""},
                     {top_k, 65537, ""}};
  for (const char* name : {"deepseek32", "glmdsa"}) {
    for (const Bad& bad : all) {
      const std::string of = sparse_key(name, bad.key.c_str());
      EXPECT_THAT(failure_of(name, {of}, [&](test::GgufWriter& file, const gguf::File&) { file.set(of, bad.value); }),
                  HasSubstr(bad.named.empty() ? of : bad.named))
          << bad.value;
    }
    for (const std::string& missing : {heads, length, top_k})
      EXPECT_THAT(failure_of(name, {sparse_key(name, missing.c_str())}, {}),
                  HasSubstr(sparse_key(name, missing.c_str())));
    for (const char* tensor : {"blk.0.indexer.proj.weight", "blk.0.indexer.attn_k.weight",
                               "blk.0.indexer.k_norm.weight", "blk.0.indexer.attn_q_b.weight"})
      EXPECT_THAT(failure_of(name, {tensor}, {}), HasSubstr(tensor)) << name;
    EXPECT_THAT(failure_of(name, {"blk.0.attn_q_a.weight"}, {}), HasSubstr("blk.0.attn_q_a.weight")) << name;
    EXPECT_THAT(failure_of(name, {"blk.0.indexer.proj.weight"},
                           [](test::GgufWriter& file, const gguf::File& source) {
                             const gguf::Tensor& of = *source.find("blk.0.indexer.proj.weight");
                             file.tensor("blk.0.indexer.proj.weight", of.view.dtype, {64, 8},
                                         test::Bytes(of.view.data.begin(), of.view.data.end()));
                           }),
                HasSubstr("blk.0.indexer.proj.weight: needs 8 x 64"))
        << name;
  }
}

}  // namespace
}  // namespace assay::engine
