// Families with a state: files that say the same as a golden of tests/data/goldens/arch in another way give its
// numbers, a family without a golden gives those of one that it is made of, and files that say what cannot be are
// refused by the key's or tensor's name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "assay/context.h"
#include "assay/error.h"
#include "support/gguf_edit.h"
#include "support/golden_run.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace assay {
namespace {

using StateChange = std::function<void(test::GgufWriter&, const gguf::File& source)>;

class StateEdits : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::set<std::string>& without, const StateChange& add) const {
    const gguf::File source = gguf::File::open(test::shared("goldens/arch/" + name + ".gguf"));
    test::GgufWriter edited = test::edited_copy(source, without);
    if (add) add(edited, source);
    const std::string path = (folder_.path() / "edited.gguf").string();
    edited.write(path);
    return path;
  }
  double worst(const std::string& path, const std::string& golden, Numerics numerics) const {
    ContextOptions options;
    options.numerics = numerics;
    options.cache_k = options.cache_v = KvType::f32;
    options.n_ctx = 64, options.n_ubatch = 7, options.n_threads = 1;
    Context context(Model::load(path, {.tokenizer = false}), options);
    return test::worst_of(context, test::read_tiny_golden(test::shared("goldens/arch/" + golden + ".json")));
  }
  void expect_golden(const std::string& name, const std::set<std::string>& without, const StateChange& add) const {
    const std::string path = write(name, without, add);
    EXPECT_LT(worst(path, name, Numerics::f32), 2e-4) << name;
    EXPECT_LT(worst(path, name, Numerics::oracle), 1e-6) << name;
  }
  std::string failure(const std::string& name, const std::set<std::string>& without, const StateChange& add) const {
    try {
      Model::load(write(name, without, add), {.tokenizer = false});
    } catch (const Error& error) {
      return error.what();
    }
    return "loaded";
  }

 private:
  test::TempFolder folder_;
};

StateChange with_count(const std::string& key, uint32_t value) {
  return [=](test::GgufWriter& file, const gguf::File&) { file.set(key, value); };
}

TEST_F(StateEdits, RecurrentLayersMayBeAnInterval) {
  expect_golden("qwen35", {"qwen35.attention.recurrent_layers"}, {});  // every fourth
  expect_golden("qwen35", {"qwen35.attention.recurrent_layers", "qwen35.full_attention_interval"},
                {});  // the family's default
  expect_golden("qwen3next", {"qwen3next.attention.recurrent_layers", "qwen3next.full_attention_interval"},
                with_count("qwen3next.full_attention_interval", 2));
}

// b and a of each key head's value heads, in two tensors and in one.
TEST_F(StateEdits, AlphaAndBetaMayBeFusedOrNot) {
  expect_golden("qwen3next", {"blk.0.ssm_ba.weight"}, [](test::GgufWriter& file, const gguf::File& source) {
    const gguf::Tensor& both = *source.find("blk.0.ssm_ba.weight");
    for (const auto& [name, first] : {std::pair("blk.0.ssm_beta.weight", 0), std::pair("blk.0.ssm_alpha.weight", 2)}) {
      test::Bytes rows;
      for (const int64_t row : {first, first + 1, first + 4, first + 5})
        test::append(rows, both.view.row(row), static_cast<size_t>(both.view.row_bytes()));
      file.tensor(name, both.view.dtype, {4, 64}, rows);
    }
  });
}

TEST_F(StateEdits, FalconH1NormMayHaveItsEnding) {
  expect_golden("falconh1", {"blk.0.ffn_norm"}, [](test::GgufWriter& file, const gguf::File& source) {
    const gguf::Tensor& norm = *source.find("blk.0.ffn_norm");
    file.tensor("blk.0.ffn_norm.weight", norm.view.dtype, {64}, {norm.view.data.begin(), norm.view.data.end()});
  });
}

// A Mamba with the flag and one with norms of its own whose weights are all 1 are the same; Jamba is Mamba with such
// norms and a feed-forward layer, here one that adds nothing.
TEST_F(StateEdits, JambaWithUnitNormsAndAnEmptyFeedForwardIsFalconMamba) {
  const std::string falcon = write("mamba", {"mamba.ssm.dt_b_c_rms"}, [](test::GgufWriter& file, const gguf::File&) {
    file.set("mamba.ssm.dt_b_c_rms", true);
  });
  const auto logits_of = [](const std::string& path) {
    ContextOptions options;
    options.n_ctx = 64, options.n_threads = 1;
    Context context(Model::load(path, {.tokenizer = false}), options);
    std::vector<double> all;
    context.decode_all(
        test::read_tiny_golden(test::shared("goldens/arch/mamba.json")).ids,
        [&](int64_t, std::span<const double> logits) { all.insert(all.end(), logits.begin(), logits.end()); });
    return all;
  };
  const std::vector<double> expected = logits_of(falcon);
  const gguf::File source = gguf::File::open(test::shared("goldens/arch/mamba.gguf"));
  std::set<std::string> keys = {"general.architecture"};
  for (const gguf::Entry& entry : source.metadata().entries()) {
    if (entry.key.starts_with("mamba.")) keys.insert(std::string(entry.key));
  }
  const std::string jamba = write("mamba", keys, [&](test::GgufWriter& file, const gguf::File&) {
    file.set("general.architecture", "jamba").set("jamba.attention.layer_norm_rms_epsilon", 1e-5f);
    for (const auto& [key, value] :
         {std::pair("context_length", 1u << 18), std::pair("embedding_length", 64u),
          std::pair("feed_forward_length", 32u), std::pair("attention.head_count", 4u), std::pair("block_count", 2u),
          std::pair("ssm.conv_kernel", 4u), std::pair("ssm.inner_size", 128u), std::pair("ssm.state_size", 16u),
          std::pair("ssm.time_step_rank", 4u)}) {
      file.set(std::string("jamba.") + key, uint32_t{value});
    }
    file.set("jamba.attention.head_count_kv", std::vector<uint32_t>{0, 0});
    for (const std::string layer : {"blk.0.", "blk.1."}) {
      const auto ones = [&](const char* name, int64_t n) {
        file.tensor(layer + name + ".weight", {n}, std::vector<float>(static_cast<size_t>(n), 1.0f));
      };
      ones("ssm_dt_norm", 4), ones("ssm_b_norm", 16), ones("ssm_c_norm", 16), ones("ffn_norm", 64);
      const std::vector<float> some(32 * 64, 0.125f), none(64 * 32, 0.0f);
      file.tensor(layer + "ffn_gate.weight", {32, 64}, some)
          .tensor(layer + "ffn_up.weight", {32, 64}, some)
          .tensor(layer + "ffn_down.weight", {64, 32}, none);
    }
  });
  EXPECT_TRUE(logits_of(jamba) == expected);
  EXPECT_GT(worst(falcon, "mamba", Numerics::f32), 1e-3);  // the norms are there
}

TEST_F(StateEdits, SizesThatCannotBeAreNamed) {
  using ::testing::HasSubstr;
  const auto refused = [&](const char* golden, const std::string& key, uint32_t value) {
    return failure(golden, {key}, with_count(key, value));
  };
  const auto missing = [&](const char* golden, const std::string& key) { return failure(golden, {key}, {}); };
  for (const char* key : {"qwen35.ssm.conv_kernel", "qwen35.ssm.state_size", "qwen35.ssm.group_count",
                          "qwen35.ssm.time_step_rank", "qwen35.ssm.inner_size"}) {
    EXPECT_THAT(missing("qwen35", key), HasSubstr(key));
    EXPECT_THAT(refused("qwen35", key, 0), HasSubstr(key));
  }
  for (const char* key : {"mamba2.ssm.conv_kernel", "mamba2.ssm.state_size", "mamba2.ssm.group_count",
                          "mamba2.ssm.time_step_rank", "mamba2.ssm.inner_size"}) {
    EXPECT_THAT(missing("mamba2", key), HasSubstr(key));
    EXPECT_THAT(refused("mamba2", key, 0), HasSubstr(key));
  }
  EXPECT_THAT(refused("qwen35", "qwen35.ssm.group_count", 3),
              HasSubstr("qwen35.ssm.group_count: needs a divisor of 4"));
  EXPECT_THAT(refused("qwen35", "qwen35.ssm.inner_size", 66),
              HasSubstr("qwen35.ssm.time_step_rank: needs a divisor of 66"));
  EXPECT_THAT(refused("qwen35", "qwen35.ssm.state_size", 15), HasSubstr("blk.0.attn_qkv.weight: needs 124 x 64"));
  EXPECT_THAT(refused("qwen35", "qwen35.ssm.conv_kernel", 3), HasSubstr("blk.0.ssm_conv1d.weight: needs 128 x 3"));
  EXPECT_THAT(refused("qwen35", "qwen35.ssm.conv_kernel", 1000), HasSubstr("qwen35.ssm.conv_kernel"));
  EXPECT_THAT(refused("mamba2", "mamba2.ssm.group_count", 3),
              HasSubstr("mamba2.ssm.group_count: needs a divisor of 8"));
  EXPECT_THAT(refused("mamba2", "mamba2.ssm.time_step_rank", 6),
              HasSubstr("mamba2.ssm.time_step_rank: needs a divisor of 128"));
  EXPECT_THAT(refused("mamba", "mamba.ssm.state_size", 8), HasSubstr("blk.0.ssm_x.weight: needs 20 x 128"));
  EXPECT_THAT(refused("lfm2", "lfm2.shortconv.l_cache", 0), HasSubstr("lfm2.shortconv.l_cache"));
  EXPECT_THAT(refused("kimilinear", "kimi-linear.kda.head_dim", 8), HasSubstr("blk.0.attn_q.weight"));
  EXPECT_THAT(refused("granitehybrid", "granitehybrid.ssm.inner_size", 0xFFFFFFFFu),
              HasSubstr("granitehybrid.ssm.inner_size"));
}

TEST_F(StateEdits, ArraysByLayerAndTensorsThatCannotBeAreNamed) {
  using ::testing::HasSubstr;
  const auto flags = [&](const std::vector<bool>& of) {
    return failure("qwen35", {"qwen35.attention.recurrent_layers"}, [&](test::GgufWriter& file, const gguf::File&) {
      file.set("qwen35.attention.recurrent_layers", of);
    });
  };
  EXPECT_THAT(flags({true, true, true}),
              HasSubstr("qwen35.attention.recurrent_layers: needs 4 values, one a layer, found 3"));
  EXPECT_THAT(flags({false, true, true, false}), HasSubstr("blk.0.attn_q.weight"));
  EXPECT_THAT(failure("nemotronh", {"nemotron_h.feed_forward_length"},
                      [](test::GgufWriter& file, const gguf::File&) {
                        file.set("nemotron_h.feed_forward_length", std::vector<uint32_t>{0, 64, 0});
                      }),
              HasSubstr("nemotron_h.feed_forward_length: needs 4 values"));
  for (const char* name : {"ssm_a", "ssm_dt.bias", "ssm_conv1d.weight", "ssm_norm.weight", "ssm_alpha.weight",
                           "attn_gate.weight", "ssm_out.weight"}) {
    const std::string tensor = std::string("blk.1.") + name;
    EXPECT_THAT(failure("qwen35", {tensor}, {}), HasSubstr(tensor));
  }
  for (const char* name : {"ssm_a", "ssm_d", "ssm_dt.bias", "ssm_in.weight", "ssm_conv1d.weight"}) {
    const std::string tensor = std::string("blk.1.") + name;
    EXPECT_THAT(failure("mamba2", {tensor}, {}), HasSubstr(tensor));
  }
  EXPECT_THAT(failure("mamba2", {"blk.0.ssm_a"},
                      [](test::GgufWriter& file, const gguf::File&) {
                        file.tensor("blk.0.ssm_a", {7, 1}, std::vector<float>(7, -1.0f));
                      }),
              HasSubstr("blk.0.ssm_a: needs 8 elements, found 7 x 1"));
}

}  // namespace
}  // namespace assay
