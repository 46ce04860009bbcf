// Against perplexity() of a file that has the one tensor in place of its own, for tensors of every kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "assay/diff.h"
#include "assay/error.h"
#include "assay/perplexity.h"
#include "gguf/file.h"
#include "measure/random_tokens.h"
#include "support/gguf_edit.h"
#include "support/random_weights.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay::kld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kChunk = 24;

// Its values a little off, each by another factor.
test::Bytes noisy(const gguf::Tensor& tensor, float spread, uint64_t seed) {
  test::Bytes bytes(tensor.view.data.begin(), tensor.view.data.end());
  test::Random random(seed);
  for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
    float x = 0;
    std::memcpy(&x, bytes.data() + at, sizeof x);
    x *= 1 + spread * random.uniform();
    std::memcpy(bytes.data() + at, &x, sizeof x);
  }
  return bytes;
}

std::shared_ptr<const Model> load(const std::filesystem::path& path) {
  return Model::load(path.string(), {.tokenizer = false});
}

class Models {
 public:
  explicit Models(const std::filesystem::path& path) : file(gguf::File::open(path)), model(load(path)) {
    ids = measure::random_tokens(2 * kChunk, model->vocab_size());
  }

  // The mean divergence of the file with these tensors from the file, both run whole.
  double by_perplexity(const std::map<std::string, TensorCandidate>& changed) const {
    const test::TempFolder folder;
    std::set<std::string> without;
    for (const auto& [name, candidate] : changed) without.insert(name);
    test::GgufWriter edited = test::edited_copy(file, without);
    for (const auto& [name, candidate] : changed) {
      const tensor::Shape& shape = file.find(name)->view.shape;
      const tensor::DType type = candidate.type == "Q8_0" ? tensor::DType::Q8_0 : tensor::DType::F32;
      edited.tensor(name, type, {shape.dims.begin(), shape.dims.begin() + shape.rank},
                    test::Bytes(candidate.data.begin(), candidate.data.end()));
    }
    edited.write(folder / "edited.gguf");
    ContextOptions options;
    options.n_ctx = kChunk;
    options.n_threads = 1;
    Context a(model, options), b(load(folder / "edited.gguf"), options);
    PerplexityOptions asked;
    asked.n_chunk = kChunk;
    return perplexity(b, &a, ids, asked).kl_divergence.mean;
  }

  gguf::File file;
  std::shared_ptr<const Model> model;
  std::vector<TokenId> ids;
};

TensorEffectOptions options_of(int n_threads, bool estimate = false) {
  TensorEffectOptions options;
  options.n_chunk = kChunk;
  options.n_chunks_max = 0;
  options.n_threads = n_threads;
  options.estimate = estimate;
  return options;
}

void expect_near(double found, double expected, const std::string& name) {
  EXPECT_NEAR(found, expected, 1e-6 * expected + 1e-13) << name;
}

TEST(TensorEffects, AreWhatPerplexitySaysOfTheWholeFile) {
  const test::TempFolder folder;
  test::TinyLlama spec;
  spec.n_layers = 3;
  spec.tied = spec.biases = true;
  test::TinyLlamaWriter(spec).file().write(folder / "a.gguf");
  const Models models(folder / "a.gguf");
  std::vector<test::Bytes> bytes;
  std::vector<TensorCandidate> candidates;
  for (const gguf::Tensor& tensor : models.file.tensors()) {
    bytes.push_back(noisy(tensor, 0.05f, bytes.size()));
    candidates.push_back({std::string(tensor.name), "F32", {}});
  }
  for (size_t i = 0; i < bytes.size(); ++i) candidates[i].data = bytes[i];
  // Another type, in the place of a tensor that is tried before.
  const test::Bytes q8 = test::random_weights(*quant::find_format(tensor::DType::Q8_0), 256 * 256, 5);
  candidates.push_back({"blk.1.attn_q.weight", "Q8_0", q8});
  const TensorEffects found = tensor_effects(models.model, models.ids, candidates, options_of(2));
  ASSERT_EQ(found.effects.size(), candidates.size());
  EXPECT_EQ(found.n_scored, 2 * (kChunk / 2 - 1));
  std::map<std::string, TensorCandidate> all;
  for (size_t i = 0; i < candidates.size(); ++i) {
    ASSERT_TRUE(found.effects[i].kl_divergence) << found.effects[i].why_none;
    EXPECT_FALSE(found.effects[i].estimated);
    EXPECT_GT(*found.effects[i].kl_divergence, 0);
    if (i % 6 == 0 || i < 2 || i + 3 > candidates.size()) {
      expect_near(*found.effects[i].kl_divergence, models.by_perplexity({{candidates[i].name, candidates[i]}}),
                  candidates[i].name);
    }
    all.emplace(candidates[i].name, candidates[i]);
  }
  expect_near(*found.all.kl_divergence, models.by_perplexity(all), "all");
  const TensorEffects other = tensor_effects(models.model, models.ids, candidates, options_of(1));
  for (size_t i = 0; i < candidates.size(); ++i)
    EXPECT_EQ(*other.effects[i].kl_divergence, *found.effects[i].kl_divergence) << "one thread";

  // Estimates: exact outside the layers and in the last, near elsewhere.
  const TensorEffects estimated = tensor_effects(models.model, models.ids, candidates, options_of(2, true));
  double distance = 0;
  int n_estimated = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const double exact = *found.effects[i].kl_divergence, near = *estimated.effects[i].kl_divergence;
    const bool in_layer = candidates[i].name.starts_with("blk.") && !candidates[i].name.starts_with("blk.2.");
    EXPECT_EQ(estimated.effects[i].estimated, in_layer) << candidates[i].name;
    if (in_layer) {
      EXPECT_LT(std::abs(std::log(near / exact)), std::log(10.0))
          << candidates[i].name << ": " << near << " for " << exact;
      distance += std::abs(std::log(near / exact));
      ++n_estimated;
    } else {
      EXPECT_EQ(near, exact) << candidates[i].name;
    }
  }
  EXPECT_LT(distance / n_estimated, std::log(2.0)) << "on average";
}

// Families whose tensors are read in parts, by experts, or whose layers hand on more than one value.
TEST(TensorEffects, OfManyFamilies) {
  for (const char* name : {"phi3", "gptoss", "gemma4-e", "deepseek2", "gpt2", "cohere2moe"}) {
    const auto path = test::shared(std::string("goldens/arch/") + name + ".gguf");
    ASSAY_REQUIRE_FILE(path);
    const Models models(path);
    std::vector<test::Bytes> bytes;
    std::vector<TensorCandidate> candidates;
    for (const gguf::Tensor& tensor : models.file.tensors()) {
      if (tensor.view.dtype != tensor::DType::F32) continue;
      bytes.push_back(noisy(tensor, 0.1f, bytes.size()));
      candidates.push_back({std::string(tensor.name), "F32", {}});
    }
    ASSERT_FALSE(bytes.empty()) << name;
    for (size_t i = 0; i < bytes.size(); ++i) candidates[i].data = bytes[i];
    const TensorEffects found = tensor_effects(models.model, models.ids, candidates, options_of(1));
    for (size_t i = 0; i < candidates.size(); i += 4) {
      if (!found.effects[i].kl_divergence) {
        EXPECT_THAT(found.effects[i].why_none, HasSubstr("no operation of the model reads it"))
            << name << ", " << candidates[i].name;
        continue;
      }
      expect_near(*found.effects[i].kl_divergence, models.by_perplexity({{candidates[i].name, candidates[i]}}),
                  name + (", " + candidates[i].name));
    }
  }
}

std::string refusal(const std::shared_ptr<const Model>& model, std::span<const TokenId> ids,
                    const TensorCandidate& candidate) {
  try {
    tensor_effects(model, ids, std::span(&candidate, 1), options_of(1));
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::bad_request);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(TensorEffects, WhatCannotBeTried) {
  const test::TempFolder folder;
  test::TinyLlamaWriter({}).file().write(folder / "a.gguf");
  const Models models(folder / "a.gguf");
  const test::Bytes row(256 * sizeof(float));
  EXPECT_THAT(refusal(models.model, models.ids, {"no.such", "F32", row}), HasSubstr("no tensor of this name"));
  EXPECT_THAT(refusal(models.model, models.ids, {"output_norm.weight", "F23", row}), HasSubstr("no type \"F23\""));
  EXPECT_THAT(refusal(models.model, models.ids, {"output_norm.weight", "F32", std::span(row).first(8)}),
              HasSubstr("found 8 bytes"));
  EXPECT_THAT(refusal(models.model, std::span(models.ids).first(7), {"output_norm.weight", "F32", row}),
              HasSubstr("too short"));
  EXPECT_THAT(refusal(models.model, std::vector<TokenId>(20, 96), {"output_norm.weight", "F32", row}),
              HasSubstr("token 96"));
  const TensorCandidate of_integers{"output_norm.weight", "I32", row};
  const TensorEffects found = tensor_effects(models.model, models.ids, std::span(&of_integers, 1), options_of(1));
  EXPECT_FALSE(found.effects[0].kl_divergence);
  EXPECT_THAT(found.effects[0].why_none, HasSubstr("I32 cannot be run"));
}

TEST(TensorEffects, CanBeCancelled) {
  const test::TempFolder folder;
  test::TinyLlamaWriter({}).file().write(folder / "a.gguf");
  const Models models(folder / "a.gguf");
  const gguf::Tensor& norm = *models.file.find("blk.0.attn_norm.weight");
  const TensorCandidate same{std::string(norm.name), "F32", norm.view.data};
  TensorEffectOptions options = options_of(1);
  std::vector<std::string> told;
  options.progress = [&](int64_t done, int64_t total, std::string_view tensor) {
    EXPECT_EQ(done, 1);
    EXPECT_EQ(total, 1);
    told.emplace_back(tensor);
  };
  const TensorEffects whole = tensor_effects(models.model, models.ids, std::span(&same, 1), options);
  EXPECT_FALSE(whole.cancelled);
  EXPECT_LT(*whole.effects[0].kl_divergence, 1e-14);
  EXPECT_THAT(told, ElementsAre("blk.0.attn_norm.weight"));
  int asked = 0;
  options.cancelled = [&] { return ++asked == 3; };
  EXPECT_TRUE(tensor_effects(models.model, models.ids, std::span(&same, 1), options).cancelled);
  EXPECT_EQ(asked, 3);
}

// The text is long enough for every tokenizer there is: whole words are the most that one token has.
TEST(TensorEffects, TheBuiltInTextHasEnoughWords) {
  int n_words = 0;
  for (size_t i = 1; i < effect_text().size(); ++i)
    n_words += effect_text()[i] == ' ' && effect_text()[i - 1] != ' ' ? 1 : 0;
  EXPECT_GT(n_words, 512);
}

}  // namespace
}  // namespace assay::kld
