// Lint on real vocabularies and small models: silent on right ones, and each rule on a file made to
// break it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "assay/inspect.h"
#include "model/build.h"
#include "model/usual.h"
#include "support/gguf_edit.h"
#include "support/shared_data.h"
#include "support/talking_llama.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Less that the models made here have no vocabulary.
std::vector<LintFinding> lint_of(const std::filesystem::path& path) {
  InspectOptions options;
  options.lint = true;
  options.context.n_threads = 1;
  std::vector<LintFinding> found = inspect(path.string(), options).lint;
  std::erase_if(found, [](const LintFinding& f) {
    return f.rule == "unusable" && f.message.find("'tokenizer.ggml.model' is needed") != std::string::npos;
  });
  return found;
}

std::vector<LintFinding> lint_of(const test::GgufWriter& file) {
  const test::TempFolder folder;
  file.write(folder / "m.gguf");
  return lint_of(folder / "m.gguf");
}

std::vector<std::string> rules_of(const std::vector<LintFinding>& findings) {
  std::vector<std::string> rules;
  for (const LintFinding& finding : findings) rules.push_back(finding.rule);
  return rules;
}

std::filesystem::path vocabulary(const std::string& name) {
  return test::shared("vectors/tokenizers/ggml-vocab-" + name + ".gguf");
}

TEST(Lint, RightVocabulariesAreFine) {
  for (const char* name : {"gpt-2", "llama-bpe", "llama-spm", "qwen2", "starcoder", "deepseek-coder"}) {
    SCOPED_TRACE(name);
    ASSAY_REQUIRE_FILE(vocabulary(name));
    EXPECT_THAT(rules_of(lint_of(vocabulary(name))), IsEmpty());
  }
}

TEST(Lint, AWrongPreTokenizerShowsInTheVocabulary) {
  struct Wrong {
    const char *vocabulary, *pre;
  };
  for (const Wrong& wrong : {Wrong{"llama-bpe", "gpt-2"}, Wrong{"llama-bpe", "smaug-bpe"}, Wrong{"qwen2", "llama-bpe"},
                             Wrong{"gpt-2", "smollm"}, Wrong{"gpt-2", "llama-bpe"}, Wrong{"starcoder", "gpt-2"},
                             Wrong{"starcoder", "llama-bpe"}, Wrong{"deepseek-coder", "qwen2"}}) {
    SCOPED_TRACE(std::string(wrong.vocabulary) + " as " + wrong.pre);
    ASSAY_REQUIRE_FILE(vocabulary(wrong.vocabulary));
    const gguf::File file = gguf::File::open(vocabulary(wrong.vocabulary));
    test::GgufWriter edited = test::edited_copy(file, {"tokenizer.ggml.pre"});
    EXPECT_THAT(rules_of(lint_of(edited.set("tokenizer.ggml.pre", wrong.pre))), Contains("pre_tokenizer"));
  }
}

// A chat model of SmolLM2's vocabulary with another template or other ids.
class LintChat : public ::testing::Test {
 protected:
  static constexpr const char* kTemplate =
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' "
      "+ '\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  std::vector<LintFinding> lint_with(const std::string& chat_template, bool add_bos = false, uint32_t eos = 2) {
    const gguf::File file = gguf::File::open(test::smollm2());
    std::set<std::string> without = {"tokenizer.chat_template", "tokenizer.ggml.add_bos_token",
                                     "tokenizer.ggml.eos_token_id"};
    for (const gguf::Tensor& tensor : file.tensors()) without.insert(std::string(tensor.name));
    test::GgufWriter edited = test::edited_copy(file, without);
    edited.set("tokenizer.chat_template", chat_template)
        .set("tokenizer.ggml.add_bos_token", add_bos)
        .set("tokenizer.ggml.eos_token_id", eos);
    return lint_of(edited);
  }
};

TEST_F(LintChat, RulesOfTemplates) {
  ASSAY_REQUIRE_FILE(test::smollm2());
  EXPECT_THAT(rules_of(lint_with(kTemplate)), IsEmpty());
  EXPECT_THAT(rules_of(lint_with("{{ bos_token }}" + std::string(kTemplate), true)), Contains("bos_twice"));
  EXPECT_THAT(rules_of(lint_with("{{ bos_token }}{{ bos_token }}" + std::string(kTemplate))), Contains("bos_twice"));
  EXPECT_THAT(rules_of(lint_with("{% for m in messages %}{{ m['content'] }}{% endfor %}")),
              Contains("eos_in_template"));
  EXPECT_THAT(rules_of(lint_with("{% for m in messages %}{{ m['content'] + '<|im_end|>' }}{% endfor %}")),
              Contains("generation_prompt"));
  EXPECT_THAT(rules_of(lint_with("{% for m in messages %}{% if m['role'] == 'user' %}{{ "
                                 "m['content'] + eos_token }}{% endif %}{% endfor %}")),
              Contains("template_content"));
  EXPECT_THAT(rules_of(lint_with("{{ raise_exception('no') }}")), Contains("template_render"));
  // Ends answers with a token that ends nothing.
  const std::vector<LintFinding> found = lint_with(
      "{% for m in messages %}{{ m['role'] + m['content'] + '<repo_name>' }}{% endfor %}{% if "
      "add_generation_prompt %}>{% endif %}");
  EXPECT_THAT(rules_of(found), Contains("end_of_turn"));
}

TEST(Lint, RulesOfHyperParameters) {
  test::TinyLlama spec;
  spec.dtype = tensor::DType::Q8_0;
  EXPECT_THAT(rules_of(lint_of(test::TinyLlamaWriter(spec).file())), IsEmpty());

  spec.without = {"rope.freq_base"};
  EXPECT_THAT(rules_of(lint_of(test::TinyLlamaWriter(spec).file().set("llama.rope.freq_base", 12345.0f))),
              Contains("rope_base"));
  spec.without = {"attention.layer_norm_rms_epsilon"};
  EXPECT_THAT(
      rules_of(lint_of(test::TinyLlamaWriter(spec).file().set("llama.attention.layer_norm_rms_epsilon", 1e-3f))),
      Contains("norm_eps"));
  spec.without = {"rope.dimension_count"};
  EXPECT_THAT(rules_of(lint_of(test::TinyLlamaWriter(spec).file().set("llama.rope.dimension_count", uint32_t{32}))),
              Contains("rope_dim"));
  spec.without = {};
  EXPECT_THAT(rules_of(lint_of(test::TinyLlamaWriter(spec).file().set("llama.vocab_size", uint32_t{97}))),
              Contains("vocab_size"));
  EXPECT_THAT(rules_of(lint_of(test::TinyLlamaWriter(spec).file().set("llama.new_thing", 1.0f))),
              Contains("unread_key"));
  spec.n_ctx_train = 32768;
  EXPECT_THAT(rules_of(lint_of(test::TinyLlamaWriter(spec).file())), Contains("rope_base"));

  test::TinyLlama wide;
  wide.d_ff = 32 * wide.d_model;
  wide.n_layers = 1;
  EXPECT_THAT(rules_of(lint_of(test::TinyLlamaWriter(wide).file())), Contains("d_ff"));
}

// Every architecture that has a small model here, each of its keys with usual values: another value is said, by key and
// value.
TEST(Lint, UnusualValuesOfEveryFamilyShow) {
  ASSAY_REQUIRE_FILE(test::shared("goldens/arch/qwen2.gguf"));
  std::set<std::string> architectures;
  for (const auto& entry : std::filesystem::directory_iterator(test::shared("goldens/arch"))) {
    if (entry.path().extension() != ".gguf") continue;
    const gguf::File file = gguf::File::open(entry.path());
    const std::string architecture(file.metadata().find_string("general.architecture").value());
    if (!architectures.insert(architecture).second) continue;
    const auto is_served = model::is_served(architecture);
    for (const model::UsualValue& row : model::usual_values()) {
      if (!is_served || (row.architecture != architecture && !row.architecture.empty())) continue;
      const std::string key = architecture + "." + std::string(row.key);
      const auto old = std::ranges::find(file.metadata().entries(), key, &gguf::Entry::key);
      if (old == file.metadata().entries().end() || old->type == gguf::ValueType::array) continue;
      test::GgufWriter edited = test::edited_copy(file, {key});
      const double odd = 1.375 * row.values[0];
      if (old->type == gguf::ValueType::f32) {
        edited.set(key, static_cast<float>(odd));
      } else {
        edited.set(key, static_cast<uint32_t>(odd));
      }
      const std::string shown = fmt::format(
          "{:g}", old->type == gguf::ValueType::f32 ? static_cast<double>(static_cast<float>(odd)) : std::floor(odd));
      EXPECT_THAT(lint_of(edited),
                  Contains(testing::Field(
                      &LintFinding::message,
                      testing::AllOf(HasSubstr(shown), HasSubstr("known " + architecture + " models have")))))
          << key;
    }
  }
  EXPECT_GE(architectures.size(), 60u);
}

TEST(Lint, UsualValuesAreOfArchitecturesThatThereAre) {
  for (const model::UsualValue& row : model::usual_values()) {
    EXPECT_TRUE(row.architecture.empty() || model::is_served(row.architecture)) << row.architecture;
    EXPECT_NE(row.values[0], 0.0) << row.architecture << " " << row.key;
  }
  for (const model::UsualRotation& row : model::usual_rotations()) {
    EXPECT_TRUE(model::is_served(row.architecture)) << row.architecture;
  }
}

TEST(Lint, AMissingOrRepeatedHeadShows) {
  test::TinyLlama spec;
  spec.vocab_size = 32000;
  spec.d_model = 32;
  spec.n_heads = 1;
  spec.n_kv_heads = 1;
  spec.head_dim = 32;
  spec.d_ff = 64;
  spec.n_layers = 1;
  spec.tied = true;
  EXPECT_THAT(rules_of(lint_of(test::TinyLlamaWriter(spec).file())), Contains("tied_head"));
  spec.tied = false;
  test::TinyLlamaWriter whole(spec);
  EXPECT_THAT(rules_of(lint_of(whole.file())), IsEmpty());
  const test::Bytes bytes = whole.file().bytes();
  const gguf::File file = gguf::File::parse(bytes);
  const auto table = file.find("token_embd.weight")->view.data;
  const auto repeat = [&](std::string_view name, test::Bytes& data) {
    if (name == "output.weight") data.assign(table.begin(), table.end());
  };
  const std::vector<LintFinding> found = lint_of(test::edited_copy(file, {}, repeat));
  EXPECT_THAT(rules_of(found), Contains("tied_head"));
  EXPECT_THAT(found.front().message, HasSubstr("byte by byte"));
}

TEST(Lint, WhatCannotBeServedIsAFindingAndNoKeyIsUnreadBecauseOfIt) {
  test::TinyLlama spec;
  const auto with = [&](const char* key, auto value) {
    return lint_of(test::TinyLlamaWriter(spec).file().set(key, value));
  };
  const std::vector<LintFinding> odd = with("llama.rope.scaling.type", "odd");
  EXPECT_THAT(rules_of(odd), testing::AllOf(Contains("unusable"), testing::Not(Contains("unread_key"))));
  EXPECT_EQ(odd.front().rule, "unusable");
  EXPECT_EQ(odd.front().level, LintLevel::error);
  EXPECT_THAT(odd.front().message, HasSubstr("llama.rope.scaling.type"));
  test::TalkingLlama one_word;
  one_word.words = {"a"};
  const std::vector<LintFinding> pre =
      lint_of(test::talking_llama(one_word).set("tokenizer.chat_template", "{% if %}"));
  EXPECT_THAT(rules_of(pre), Contains("unusable"));
}

TEST(Lint, TextAndJsonTellThem) {
  test::TinyLlama spec;
  spec.without = {"rope.freq_base"};
  const test::TempFolder folder;
  test::TinyLlamaWriter(spec).file().set("llama.rope.freq_base", 12345.0f).write(folder / "m.gguf");
  InspectOptions options;
  options.lint = true;
  options.context.n_threads = 1;
  const Inspection in = inspect((folder / "m.gguf").string(), options);
  EXPECT_THAT(in.lint_text(), HasSubstr("warning: rope_base: the base of RoPE is 12345"));
  EXPECT_THAT(in.to_json(), HasSubstr("\"rule\": \"rope_base\", \"level\": \"warning\""));
  options.lint = false;
  EXPECT_THAT(inspect((folder / "m.gguf").string(), options).to_json(), ::testing::Not(HasSubstr("\"lint\"")));
}

}  // namespace
}  // namespace assay
