// What the families' keys must not say: each file is a golden of tests/data/goldens/arch with one key or tensor
// changed, and each is refused by the name of that key, or of the tensor that does not fit it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "assay/error.h"
#include "assay/model.h"
#include "support/gguf_edit.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace assay {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct BadKey {
  const char* golden;
  const char* key;
  std::variant<uint32_t, float, bool, std::vector<uint32_t>, std::vector<float>> value;
  const char* named = nullptr;  // in the message; null: the key
};

std::string failure(const std::string& path) {
  try {
    Model::load(path, {.tokenizer = false});
  } catch (const Error& error) {
    EXPECT_TRUE(error.code == Errc::bad_file || error.code == Errc::unsupported) << error.what();
    return error.what();
  }
  return "loaded";
}

void expect_refused(const BadKey& bad) {
  const auto path = test::shared(std::string("goldens/arch/") + bad.golden + ".gguf");
  ASSAY_REQUIRE_FILE(path);
  const gguf::File file = gguf::File::open(path);
  test::GgufWriter edited = test::edited_copy(file, {bad.key});
  std::visit([&](const auto& value) { edited.set(bad.key, value); }, bad.value);
  const test::TempFolder folder;
  edited.write(folder / "bad.gguf");
  EXPECT_THAT(failure((folder / "bad.gguf").string()), testing::HasSubstr(bad.named == nullptr ? bad.key : bad.named))
      << bad.golden << ": " << bad.key;
}

using Counts = std::vector<uint32_t>;

TEST(ArchBadInput, CountsOfExperts) {
  const BadKey all[] = {
      {"deepseek2", "deepseek2.expert_count", 4097u},
      {"deepseek2", "deepseek2.expert_count", 9u, "blk.1.ffn_gate_inp.weight: needs 9 x 64"},
      {"deepseek2", "deepseek2.expert_used_count", 0u},
      {"deepseek2", "deepseek2.expert_used_count", 9u},
      {"deepseek2", "deepseek2.expert_group_count", 3u},
      {"deepseek2", "deepseek2.expert_group_count", 9u},
      {"deepseek2", "deepseek2.expert_group_used_count", 2u},
      {"deepseek2", "deepseek2.expert_feed_forward_length", 17u, "blk.1.ffn_gate_exps.weight: needs 8 x 17 x 64"},
      {"deepseek2", "deepseek2.expert_weights_scale", -1.0f},
      {"deepseek2", "deepseek2.expert_weights_scale", kNan},
      {"mixtral", "llama.expert_count", 5u, "blk.0.ffn_gate_inp.weight: needs 5 x 64"},
      {"mixtral", "llama.expert_used_count", 5u},
      {"qwen3moe", "qwen3moe.expert_used_count", 9u},
      {"gptoss", "gpt-oss.expert_used_count", 0u},
      {"phimoe", "phimoe.expert_used_count", 1u, "phimoe.expert_used_count = 1: only 2"},
      {"llama4", "llama4.interleave_moe_layer_step", 0u},
      {"minimaxm3", "minimax-m3.expert_count", 0u},
      {"qwen4exp", "qwen4exp.expert_used_count", 0u},
      {"bailing3", "bailingmoe3.expert_group_count", 3u},
  };
  for (const BadKey& bad : all) expect_refused(bad);
}

TEST(ArchBadInput, CapsScalesAndWindows) {
  const BadKey all[] = {
      {"gemma2", "gemma2.attn_logit_softcapping", 0.0f},
      {"gemma2", "gemma2.attn_logit_softcapping", kNan},
      {"gemma2", "gemma2.final_logit_softcapping", -30.0f},
      {"gemma2", "gemma2.attention.sliding_window", 0u},
      {"gptoss", "gpt-oss.attention.sliding_window", 0u},
      {"cohere2", "cohere2.attention.sliding_window", 0u},
      {"cohere2", "cohere2.logit_scale", kNan},
      {"granite", "granite.residual_scale", -1.0f},
      {"granite", "granite.embedding_scale", -12.0f},
      {"granite", "granite.logit_scale", 0.0f},
      {"granite", "granite.attention.scale", -0.5f},
      {"granite", "granite.attention.scale", kNan},
  };
  for (const BadKey& bad : all) expect_refused(bad);
}

TEST(ArchBadInput, BoundsOfGates) {
  for (const float bad : {-1.0f, kNan, 0.1f}) {
    for (const char* key : {"bailingmoe3.swiglu_clamp_exp", "bailingmoe3.swiglu_clamp_shexp"})
      expect_refused({"bailing3-bounded", key, std::vector<float>{0.0f, 0.5f, bad}});
  }
}

TEST(ArchBadInput, WidthsOfKeysAndValues) {
  const BadKey all[] = {
      {"gemma2", "gemma2.attention.key_length", 48u, "blk.0.attn_q.weight: needs 192 x 64"},
      {"gemma2", "gemma2.attention.value_length", 8u, "blk.0.attn_v.weight: needs 16 x 64"},
      {"mimo2", "mimo2.attention.value_length", 7u, "attn_v"},
      {"deepseek2", "deepseek2.attention.kv_lora_rank", 31u, "blk.0.attn_kv_a_mqa.weight"},
      {"phi3", "phi3.attention.head_count_kv", 4u, "blk.0.attn_qkv.weight"},  // a fused tensor of the wrong split
      {"phi3", "phi3.feed_forward_length", 63u, "blk.0.ffn_up.weight"},
      {"gemma4-moe", "gemma4.expert_feed_forward_length", 15u, "blk.0.ffn_gate_up_exps.weight"},
      {"kimilinear", "kimi-linear.kda.head_dim", 8u, "blk.0.attn_q.weight"},
  };
  for (const BadKey& bad : all) expect_refused(bad);
}

TEST(ArchBadInput, ArraysByLayer) {
  const BadKey all[] = {
      {"laguna", "laguna.attention.head_count", Counts{4}},
      {"gemma3n", "gemma3n.activation_sparsity_scale", std::vector<float>{1.0f}},
      {"gemma3n", "gemma3n.altup.num_inputs", 0u},
      {"gemma3n", "gemma3n.altup.active_idx", 9u},
      {"nemotronh", "nemotron_h.feed_forward_length", Counts{64, 64}},
  };
  for (const BadKey& bad : all) expect_refused(bad);
}

// A tensor with its elements in another shape.
TEST(ArchBadInput, TensorsOfTheWrongRank) {
  const struct {
    const char *golden, *tensor;
    std::vector<int64_t> shape;
  } all[] = {
      {"mixtral", "blk.0.ffn_down_exps.weight", {256, 32}}, {"mixtral", "blk.0.ffn_gate_inp.weight", {256}},
      {"deepseek2", "blk.0.attn_k_b.weight", {128, 16}},    {"gptoss", "blk.0.attn_sinks.weight", {2, 2}},
      {"mamba2", "blk.0.ssm_conv1d.weight", {768}},
  };
  for (const auto& bad : all) {
    const auto path = test::shared(std::string("goldens/arch/") + bad.golden + ".gguf");
    ASSAY_REQUIRE_FILE(path);
    const gguf::File file = gguf::File::open(path);
    const gguf::Tensor* tensor = file.find(bad.tensor);
    ASSERT_NE(tensor, nullptr) << bad.golden << ": " << bad.tensor;
    test::GgufWriter edited = test::edited_copy(file, {bad.tensor});
    edited.tensor(bad.tensor, tensor->view.dtype, bad.shape,
                  test::Bytes(tensor->view.data.begin(), tensor->view.data.end()));
    const test::TempFolder folder;
    edited.write(folder / "bad.gguf");
    EXPECT_THAT(failure((folder / "bad.gguf").string()), testing::HasSubstr(bad.tensor)) << bad.golden;
  }
}

}  // namespace
}  // namespace assay
