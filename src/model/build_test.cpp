#include "model/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>

#include "assay/error.h"
#include "model/arch/list.h"
#include "model/rope_scaling.h"
#include "support/shared_data.h"
#include "support/tiny_llama.h"

namespace assay::model {
namespace {

using test::Bytes;
using test::GgufWriter;
using test::TinyLlama;
using test::TinyLlamaWriter;
using ::testing::HasSubstr;

TinyLlama small() {
  TinyLlama spec;
  spec.d_model = 64;
  spec.d_ff = 96;
  spec.head_dim = 16;
  spec.vocab_size = 40;
  return spec;
}

BuiltModel build(const Bytes& bytes) { return build_model(gguf::File::parse(bytes)); }

// The Error that building gives, as text; its code in `code`.
std::string failure(const Bytes& bytes, Errc& code) {
  try {
    build(bytes);
  } catch (const Error& error) {
    code = error.code;
    return error.what();
  }
  return "built without an error";
}

// Every value is written once, before it is read, and reads what fits.
TEST(BuildModel, ThePlanIsInSingleAssignmentForm) {
  const Bytes bytes = TinyLlamaWriter(small()).file().bytes();
  const BuiltModel built = build(bytes);
  const ops::Plan& plan = built.plan;
  std::set<std::string> names;
  for (const ops::Value& value : plan.values) EXPECT_TRUE(names.insert(value.name).second) << value.name;
  EXPECT_EQ(plan.vocab_size, 40);
  EXPECT_EQ(plan.d_model, 64);
  EXPECT_EQ(plan.cache_layers.size(), 2u);
  EXPECT_EQ(plan.ops.size(), 1 + 2 * 16 + 2 + 2u);
  EXPECT_EQ(plan.ops.front().name, "token_embd");
  EXPECT_EQ(plan.ops[1].name, "blk.0.attn_norm");
  EXPECT_EQ(plan.ops[1].layer, 0);
  EXPECT_EQ(plan.ops.back().name, "output");
  EXPECT_EQ(plan.ops.back().layer, -1);
  const ops::Value& logits = plan.values[static_cast<size_t>(plan.logits)];
  EXPECT_EQ(logits.width, 40);
  EXPECT_EQ(logits.domain, ops::RowDomain::outputs);
  EXPECT_EQ(plan.ropes.size(), 1u);
}

TEST(BuildModel, TiedHeadIsEnteredOnce) {
  TinyLlama spec = small();
  const size_t untied = build(TinyLlamaWriter(spec).file().bytes()).plan.weights.size();
  spec.tied = true;
  EXPECT_EQ(build(TinyLlamaWriter(spec).file().bytes()).plan.weights.size(), untied - 1);
}

struct BadKey {
  std::string key;                                           // less "llama."
  std::function<void(GgufWriter&, const std::string&)> set;  // null: the key is left out
  Errc code;
  std::string message;
};

template <class T>
std::function<void(GgufWriter&, const std::string&)> to(T value) {
  return [value](GgufWriter& file, const std::string& key) { file.set(key, value); };
}

// What a hostile file may say of rope scaling, heads and widths.
TEST(BuildModel, RefusesHyperParametersOutOfRange) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<BadKey> cases = {
      {"block_count", to(uint32_t{600}), Errc::bad_file,
       "blk.2.attn_norm.weight"},  // no table of layers has a fixed size
      {"block_count", to(uint32_t{1} << 31), Errc::bad_file, "1 to 4096, found 2147483648"},
      {"block_count", to(uint32_t{0}), Errc::bad_file, "1 to 4096, found 0"},
      {"block_count", to("two"), Errc::bad_file, "llama.block_count"},
      {"block_count", to(2.0f), Errc::bad_file, "llama.block_count"},
      {"block_count", to(int32_t{-1}), Errc::bad_file, "llama.block_count"},
      {"block_count", to(std::vector<uint32_t>{2, 2}), Errc::bad_file, "llama.block_count"},
      {"block_count", nullptr, Errc::bad_file, "llama.block_count"},
      {"block_count", to(uint32_t{1}), Errc::unsupported, "blk.1."},  // tensors of a layer that nobody runs
      {"context_length", to(uint32_t{0}), Errc::bad_file, "llama.context_length"},
      {"context_length", to(~uint32_t{0}), Errc::bad_file, "found 4294967295"},
      {"context_length", nullptr, Errc::bad_file, "llama.context_length"},
      {"embedding_length", to(uint32_t{0}), Errc::bad_file, "llama.embedding_length"},
      {"embedding_length", to(~uint64_t{0}), Errc::bad_file, "llama.embedding_length"},
      {"embedding_length", to(uint32_t{128}), Errc::bad_file, "token_embd.weight: needs 40 x 128, found 40 x 64"},
      {"feed_forward_length", to(uint32_t{0}), Errc::bad_file, "llama.feed_forward_length"},
      {"feed_forward_length", to(uint32_t{95}), Errc::bad_file, "blk.0.ffn_gate.weight: needs 95 x 64"},
      {"feed_forward_length", to(std::vector<uint32_t>{96}), Errc::bad_file,
       "llama.feed_forward_length: needs 2 values"},
      {"feed_forward_length", to(std::vector<uint32_t>{96, 128}), Errc::bad_file,
       "blk.1.ffn_gate.weight: needs 128 x 64"},
      {"attention.head_count", to(uint32_t{0}), Errc::bad_file, "llama.attention.head_count"},
      {"attention.head_count", to(~uint32_t{0}), Errc::bad_file, "llama.attention.head_count"},
      {"attention.head_count", to(uint32_t{8}), Errc::bad_file, "blk.0.attn_q.weight: needs 128 x 64"},
      {"attention.head_count_kv", to(uint32_t{0}), Errc::bad_file, "llama.attention.head_count_kv"},
      {"attention.head_count_kv", to(uint32_t{3}), Errc::bad_file, "a divisor of 4"},
      {"attention.head_count_kv", to(uint32_t{8}), Errc::bad_file, "a divisor of 4"},
      {"attention.head_count_kv", nullptr, Errc::bad_file, "blk.0.attn_k.weight: needs 64 x 64, found 32 x 64"},
      {"attention.key_length", to(uint32_t{0}), Errc::bad_file, "llama.attention.key_length"},
      {"attention.value_length", to(uint32_t{32}), Errc::bad_file, "blk.0.attn_v.weight: needs 64 x 64"},
      {"rope.dimension_count", to(uint32_t{15}), Errc::bad_file, "even number"},
      {"rope.dimension_count", to(uint32_t{18}), Errc::bad_file, "up to the head's 16"},
      {"rope.dimension_count", to(uint32_t{0}), Errc::bad_file, "llama.rope.dimension_count"},
      {"rope.freq_base", to(0.0f), Errc::bad_file, "llama.rope.freq_base"},
      {"rope.freq_base", to(-10000.0f), Errc::bad_file, "llama.rope.freq_base"},
      {"rope.freq_base", to(kNan), Errc::bad_file, "llama.rope.freq_base"},
      {"rope.freq_base", to(kInfinity), Errc::bad_file, "llama.rope.freq_base"},
      {"attention.layer_norm_rms_epsilon", to(0.0f), Errc::bad_file, "llama.attention.layer_norm_rms_epsilon"},
      {"attention.layer_norm_rms_epsilon", to(kNan), Errc::bad_file, "llama.attention.layer_norm_rms_epsilon"},
      {"attention.layer_norm_rms_epsilon", to(-1e-5f), Errc::bad_file, "llama.attention.layer_norm_rms_epsilon"},
      {"attention.layer_norm_rms_epsilon", to(1e-60), Errc::bad_file, "float32"},
      {"attention.layer_norm_rms_epsilon", nullptr, Errc::bad_file, "llama.attention.layer_norm_rms_epsilon"},
      {"expert_count", to(uint32_t{8}), Errc::bad_file, "llama.expert_used_count"},
      {"attention.causal", to(false), Errc::unsupported, "llama.attention.causal"},
      {"final_logit_softcapping", to(30.0f), Errc::unsupported, "llama.final_logit_softcapping"},
      {"logit_scale", to(0.5f), Errc::unsupported, "llama.logit_scale"},
      {"rope.scaling.type", to("longrope"), Errc::unsupported, "\"longrope\""},
      {"rope.scaling.factor", to(0.0f), Errc::bad_file, "llama.rope.scaling.factor"},
      {"rope.scaling.factor", to(kNan), Errc::bad_file, "llama.rope.scaling.factor"},
      {"rope.scaling.attn_factor", to(-1.0f), Errc::bad_file, "llama.rope.scaling.attn_factor"},
  };
  for (const BadKey& bad : cases) {
    TinyLlama spec = small();
    spec.without = {bad.key};
    TinyLlamaWriter writer(spec);
    if (bad.set) bad.set(writer.file(), "llama." + bad.key);
    Errc code{};
    EXPECT_THAT(failure(writer.file().bytes(), code), HasSubstr(bad.message)) << bad.key;
    EXPECT_EQ(code, bad.code) << bad.key << " " << bad.message;
  }
}

TEST(BuildModel, NamesArchitecturesThatItDoesNotServe) {
  Errc code{};
  EXPECT_THAT(failure(GgufWriter().set("general.architecture", "no-such-family").bytes(), code),
              HasSubstr("\"no-such-family\": this build serves llama, gemma3"));
  EXPECT_EQ(code, Errc::unsupported);
  EXPECT_THAT(failure(GgufWriter().set("x", "y").bytes(), code), HasSubstr("general.architecture"));
  EXPECT_EQ(code, Errc::bad_file);
}

TEST(BuildModel, RefusesTensorsThatDoNotFit) {
  struct Case {
    std::string without;
    std::function<void(GgufWriter&)> add;
    Errc code;
    std::string message;
  };
  const std::vector<float> zeros(64 * 64);
  const std::vector<Case> cases = {
      {"token_embd.weight", [](GgufWriter&) {}, Errc::bad_file, "token_embd.weight"},
      {"blk.1.ffn_up.weight", [](GgufWriter&) {}, Errc::bad_file, "blk.1.ffn_up.weight: the file has no tensor"},
      {"output_norm.weight", [](GgufWriter& f) { f.tensor("output_norm.weight", {63}, std::vector<float>(63)); },
       Errc::bad_file, "needs 64 elements, found 63"},
      {"output_norm.weight",
       [](GgufWriter& f) { f.tensor("output_norm.weight", tensor::DType::F16, {64}, Bytes(128)); }, Errc::unsupported,
       "F16"},
      {"blk.0.attn_q.weight",
       [&](GgufWriter& f) {
         f.tensor("blk.0.attn_q.weight", {1, 64, 64}, zeros);
       },
       Errc::bad_file, "needs 64 x 64, found 1 x 64 x 64"},
      {"blk.0.attn_q.weight",
       [](GgufWriter& f) {
         f.tensor("blk.0.attn_q.weight", tensor::DType::I32, {64, 64}, Bytes(4 * 64 * 64));
       },
       Errc::unsupported, "I32"},
      {"", [&](GgufWriter& f) { f.tensor("blk.0.attn_q_norm.weight", {16}, std::vector<float>(16)); },
       Errc::unsupported, "blk.0.attn_q_norm.weight"},
      {"", [&](GgufWriter& f) { f.tensor("rope_freqs.weight", {7}, std::vector<float>(7)); }, Errc::bad_file,
       "needs 8 elements, found 7"},
      {"", [&](GgufWriter& f) { f.tensor("blk.0.attn_q.bias", {63}, std::vector<float>(63)); }, Errc::bad_file,
       "blk.0.attn_q.bias"},
  };
  for (const Case& bad : cases) {
    TinyLlama spec = small();
    spec.without = {bad.without};
    TinyLlamaWriter writer(spec);
    bad.add(writer.file());
    Errc code{};
    EXPECT_THAT(failure(writer.file().bytes(), code), HasSubstr(bad.message));
    EXPECT_EQ(code, bad.code) << bad.message;
  }
}

TEST(Architectures, EveryFileIsListed) {
  std::set<std::string> listed;
  for (const Architecture& architecture : architectures()) {
    std::string file(architecture.name);
    std::ranges::replace(file, '-', '_');
    listed.insert(file);
  }
  EXPECT_EQ(listed.size(), architectures().size());
  const std::set<std::string> shared_files = {"list",   "usual",     "decoder",    "indexer",
                                              "latent", "recurrent", "gated_delta"};
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(test::data("../../src/model/arch"))) {
    if (entry.path().extension() == ".cpp" && !shared_files.contains(entry.path().stem().string()))
      files.insert(entry.path().stem().string());
  }
  EXPECT_EQ(files, listed);
}

TEST(Rope, ScalesLinearly) {
  RopeScaling linear;
  linear.kind = RopeScaling::Kind::linear;
  linear.factor = 4;
  const ops::RopeSpec plain = make_rope(8, 10000, true, {});
  const ops::RopeSpec scaled = make_rope(8, 10000, true, linear);
  const std::vector<double> expected = {1, 0.1, 0.01, 0.001};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(plain.inverse_frequency[i], expected[i], 1e-15);
    EXPECT_EQ(scaled.inverse_frequency[i], plain.inverse_frequency[i] / 4);
  }
}

TEST(Rope, DividesByFactors) {
  const std::vector<float> factors = {1, 2, 4, 8};
  const ops::RopeSpec plain = make_rope(8, 10000, false, {});
  const ops::RopeSpec scaled = make_rope(8, 10000, false, {}, factors);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(scaled.inverse_frequency[i], plain.inverse_frequency[i] / factors[i]);
}

// Values of Hugging Face transformers' _compute_yarn_parameters for dim 64, theta 10000, factor 4, 2048 positions (its
// formula, run in Python).
TEST(Rope, FollowsYarn) {
  RopeScaling yarn;
  yarn.kind = RopeScaling::Kind::yarn;
  yarn.factor = 4;
  yarn.n_ctx_original = 2048;
  const ops::RopeSpec rope = make_rope(64, 10000, false, yarn);
  const std::vector<std::pair<size_t, double>> expected = {{0, 1.0},
                                                           {5, 0.23713737056616555},
                                                           {8, 0.1},
                                                           {10, 0.049745578766838564},
                                                           {12, 0.024325212770525993},
                                                           {15, 0.00794983930712751},
                                                           {20, 0.0009730085108210396},
                                                           {24, 0.00025},
                                                           {26, 0.00014058533129758727},
                                                           {31, 3.33380358040831e-05}};
  for (const auto& [i, frequency] : expected) EXPECT_NEAR(rope.inverse_frequency[i], frequency, 1e-15) << i;
}

}  // namespace
}  // namespace assay::model
