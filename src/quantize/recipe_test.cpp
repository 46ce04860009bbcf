// The types of every mix against those of llama.cpp (tests/data/make_recipes.cpp), and what no model of that table has.
#include "quantize/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "assay/error.h"
#include "support/json_facts.h"

namespace assay::quantizing {
namespace {

using tensor::DType;
using test::text;

std::string part_of(const std::string& name) {
  return name.starts_with("blk.") ? name.substr(name.find('.', 4)) : name;
}

// "blk.0.attn_k.weight 2048 256", sizes with the columns first.
RecipeTensor tensor_of(const std::string& line) {
  std::istringstream in(line);
  RecipeTensor t;
  std::vector<int64_t> sizes;
  in >> t.name;
  for (int64_t size = 0; in >> size;) sizes.insert(sizes.begin(), size);
  t.shape.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), t.shape.dims.begin());
  t.dtype = sizes.size() == 1 ? DType::F32 : DType::F16;
  return t;
}

std::vector<RecipeTensor> tensors_of(const boost::json::value& model) {
  std::vector<RecipeTensor> outside, block, all;
  for (const auto& line : model.at("tensors").as_array()) {
    RecipeTensor t = tensor_of(std::string(text(line)));
    (t.name.starts_with("blk.") ? block : outside).push_back(std::move(t));
  }
  all = outside;
  for (int64_t layer = 0; layer < model.at("n_layers").as_int64(); ++layer) {
    for (RecipeTensor t : block) {
      t.name = "blk." + std::to_string(layer) + part_of(t.name);
      all.push_back(std::move(t));
    }
  }
  return all;
}

// As the facts write it: tensors of one part together, equal neighbours as TYPE*N.
std::string written(const std::vector<RecipeTensor>& tensors, const std::vector<Choice>& choices) {
  std::map<std::string, std::vector<std::string>> by_part;
  for (size_t i = 0; i < tensors.size(); ++i)
    by_part[part_of(tensors[i].name)].emplace_back(tensor::traits(choices[i].dtype).name);
  std::vector<std::pair<std::string, int>> runs;
  for (const auto& [part, types] : by_part) {
    for (const std::string& type : types) {
      if (runs.empty() || runs.back().first != type) runs.push_back({type, 0});
      ++runs.back().second;
    }
  }
  std::string line;
  for (const auto& [type, n] : runs) line += (line.empty() ? "" : " ") + type + (n > 1 ? "*" + std::to_string(n) : "");
  return line;
}

TEST(Recipe, EveryMixGivesEveryTensorTheTypeThatLlamaCppGivesIt) {
  const boost::json::value facts = test::read_json("recipes.json");
  int n = 0;
  for (const auto& model : facts.as_array()) {
    const std::vector<RecipeTensor> tensors = tensors_of(model);
    const ModelFacts m{std::string(text(model.at("architecture"))), model.at("n_layers").as_int64(),
                       model.at("n_heads").as_int64(), model.at("n_kv_heads").as_int64(),
                       model.at("n_experts").as_int64()};
    for (const auto& [key, types] : model.at("types").as_object()) {
      const std::string name(key.data(), key.size());
      SCOPED_TRACE(std::string(text(model.at("name"))) + ": " + name);
      RecipeOptions options;
      options.mix = find_mix(name.substr(0, name.find('+')));
      ASSERT_NE(options.mix, nullptr);
      options.has_matrix = name.ends_with("+matrix");
      options.pure = name.ends_with("+pure");
      EXPECT_EQ(written(tensors, choose_types(tensors, m, options)), text(types));
      ++n;
    }
  }
  EXPECT_EQ(n, 10 * 32 * 3);
}

const ModelFacts kLlama{"llama", 4, 8, 8, 0};

std::vector<RecipeTensor> small_model() {
  return {tensor_of("output.weight 512 96"),        tensor_of("token_embd.weight 512 96"),
          tensor_of("blk.0.attn_k.weight 512 512"), tensor_of("blk.0.attn_output.weight 512 512"),
          tensor_of("blk.0.attn_v.weight 512 512"), tensor_of("blk.0.ffn_down.weight 1024 512"),
          tensor_of("blk.1.attn_v.weight 512 512"), tensor_of("blk.1.ffn_down.weight 1024 512")};
}

DType type_in(const std::vector<RecipeTensor>& tensors, const RecipeOptions& options, size_t i) {
  return choose_types(tensors, kLlama, options)[i].dtype;
}

TEST(Recipe, UsersTypesComeInTheirOrder) {
  const auto tensors = small_model();
  RecipeOptions options;
  options.mix = find_mix("q4_k_m");
  options.output_tensor_type = DType::Q8_0;
  options.token_embedding_type = DType::Q5_1;
  options.chosen = [](std::string_view) { return DType::Q2_K; };
  EXPECT_EQ(type_in(tensors, options, 0), DType::Q8_0);  // over the user's rules
  EXPECT_EQ(type_in(tensors, options, 1), DType::Q5_1);
  EXPECT_EQ(type_in(tensors, options, 2), DType::Q2_K);
  options.mix = find_mix("F16");  // float mixes know only the two of them
  EXPECT_EQ(type_in(tensors, options, 0), DType::Q8_0);
  EXPECT_EQ(type_in(tensors, options, 2), DType::F16);
}

TEST(Recipe, ATiedEmbeddingIsTheOutput) {
  auto tensors = small_model();
  tensors.erase(tensors.begin());
  RecipeOptions options;
  options.mix = find_mix("Q4_0");
  EXPECT_EQ(type_in(tensors, options, 0), DType::Q6_K);
  options.output_tensor_type = DType::Q8_0;
  EXPECT_EQ(type_in(tensors, options, 0), DType::Q8_0);
  options.token_embedding_type = DType::Q4_1;
  EXPECT_EQ(type_in(tensors, options, 0), DType::Q4_1);
}

TEST(Recipe, ATensorWithATypeOfItsOwnIsNotCounted) {
  auto tensors = small_model();
  RecipeOptions options;
  options.mix = find_mix("Q3_K_M");  // the first two v are Q5_K
  tensors.push_back(tensor_of("blk.2.attn_v.weight 512 512"));
  EXPECT_EQ(type_in(tensors, options, 8), DType::Q4_K);
  options.chosen = [](std::string_view name) {
    return name == "blk.0.attn_v.weight" ? std::optional(DType::F16) : std::nullopt;
  };
  EXPECT_EQ(type_in(tensors, options, 8), DType::Q5_K);
}

TEST(Recipe, LeavesAloneWhatItShould) {
  RecipeOptions options;
  options.mix = find_mix("Q4_0");
  for (const char* line :
       {"blk.0.attn_norm.weight 512", "blk.0.ffn_gate_inp.weight 512 8", "blk.0.attn_q.bias 512 1",
        "token_types.weight 512 2", "position_embd.weight 512 64", "blk.0.ssm_conv1d.weight 4 512",
        "blk.0.time_mix_w1.weight 512 32", "per_layer_model_proj.weight 512 64", "v.patch_embd.weight 512 64"}) {
    const RecipeTensor t = tensor_of(line);
    const Choice choice = choose_types(std::span(&t, 1), kLlama, options)[0];
    EXPECT_FALSE(choice.quantizable) << line;
    EXPECT_EQ(choice.dtype, t.dtype) << line;
  }
  const RecipeTensor head = tensor_of("output.weight 512 96");
  EXPECT_TRUE(choose_types(std::span(&head, 1), kLlama, options)[0].quantizable);
  options.leave_output_tensor = true;
  EXPECT_FALSE(choose_types(std::span(&head, 1), kLlama, options)[0].quantizable);
}

TEST(Recipe, SaysWhatItFellBackFromAndWhatNeedsAMatrix) {
  RecipeOptions options;
  options.mix = find_mix("IQ2_XXS");
  const std::vector<RecipeTensor> tensors = {tensor_of("output.weight 512 96"), tensor_of("token_embd.weight 512 96"),
                                             tensor_of("blk.0.attn_q.weight 512 512"),
                                             tensor_of("blk.0.attn_k.weight 96 512"),
                                             tensor_of("blk.0.attn_output.weight 40 512")};
  const std::vector<Choice> choices = choose_types(tensors, kLlama, options);
  EXPECT_FALSE(choices[0].needs_matrix);
  EXPECT_FALSE(choices[1].needs_matrix);
  EXPECT_TRUE(choices[2].needs_matrix);
  EXPECT_EQ(choices[3].dtype, DType::IQ4_NL);
  EXPECT_EQ(choices[3].wanted, DType::IQ2_XXS);
  EXPECT_FALSE(choices[3].needs_matrix);
  EXPECT_EQ(choices[4].dtype, DType::F16);
  EXPECT_EQ(choices[4].wanted, DType::IQ2_XXS);
}

TEST(Recipe, CopyKeepsEverything) {
  RecipeOptions options;
  options.mix = find_mix("copy");
  for (const Choice& choice : choose_types(small_model(), kLlama, options)) EXPECT_EQ(choice.dtype, DType::F16);
}

TEST(Recipe, BlocksComeByNumberBehindTheRest) {
  EXPECT_TRUE(goes_before("token_embd.weight", "blk.0.attn_k.weight"));
  EXPECT_TRUE(goes_before("output.weight", "token_embd.weight"));
  EXPECT_TRUE(goes_before("blk.2.ffn_up.weight", "blk.10.attn_k.weight"));
  EXPECT_TRUE(goes_before("blk.2.attn_k.weight", "blk.2.ffn_up.weight"));
  EXPECT_FALSE(goes_before("blk.2.attn_k.weight", "blk.2.attn_k.weight"));
}

TEST(Recipe, ABlockBeyondTheModelIsRefused) {
  RecipeOptions options;
  options.mix = find_mix("Q4_K_M");
  const RecipeTensor t = tensor_of("blk.9.ffn_down_exps.weight 512 512 8");
  EXPECT_THROW(choose_types(std::span(&t, 1), ModelFacts{"llama", 4, 8, 2, 8}, options), Error);
}

TEST(Mixes, NamesInAnyCaseAndShortOnes) {
  EXPECT_EQ(find_mix("q4_k")->name, "Q4_K_M");
  EXPECT_EQ(find_mix("Mxfp4_moe")->file_type, 38u);
  EXPECT_EQ(find_mix("Q4_9"), nullptr);
  try {
    require_mix("Q4_9");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::bad_request);
    for (const Mix& mix : all_mixes()) EXPECT_THAT(e.what(), testing::HasSubstr(std::string(mix.name)));
  }
  try {
    require_mix("IQ1_M");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("IQ1_M is a format that assay neither reads nor writes"));
  }
  EXPECT_EQ(all_mixes().size(), 33u);
}

}  // namespace
}  // namespace assay::quantizing
