#include "assay/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <fstream>
#include <set>

#include "support/gguf_writer.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace assay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const MetadataFact& fact(const Inspection& in, std::string_view key) {
  for (const MetadataFact& found : in.metadata) {
    if (found.key == key) return found;
  }
  throw std::runtime_error("no such key");
}

std::set<std::string> unread(const Inspection& in) {
  std::set<std::string> keys;
  for (const MetadataFact& found : in.metadata) {
    if (!found.read) keys.insert(found.key);
  }
  return keys;
}

TEST(Inspect, ARealModel) {
  ASSAY_REQUIRE_FILE(test::smollm2());
  InspectOptions options;
  options.context.n_ctx = 1000;
  options.context.n_threads = 1;
  const Inspection in = inspect(test::smollm2().string(), options);
  EXPECT_THAT(in.problems, IsEmpty());
  EXPECT_EQ(in.architecture, "llama");
  EXPECT_EQ(in.weights_type, "Q4_1");
  EXPECT_EQ(in.tensors.size(), 272u);
  EXPECT_EQ(in.n_parameters, 134'515'008);
  EXPECT_EQ(in.tensors[0].name, "token_embd.weight");
  EXPECT_THAT(in.tensors[0].shape, ElementsAre(49'152, 576));
  const MetadataFact& tokens = fact(in, "tokenizer.ggml.tokens");
  EXPECT_EQ(tokens.type, "array of string");
  EXPECT_EQ(tokens.count, 49'152);
  EXPECT_TRUE(tokens.shortened);
  EXPECT_EQ(fact(in, "llama.block_count").json, "30");
  EXPECT_EQ(fact(in, "llama.rope.freq_base").json, "100000");
  EXPECT_TRUE(fact(in, "tokenizer.chat_template").read);
  EXPECT_TRUE(fact(in, "llama.attention.layer_norm_rms_epsilon").read);
  EXPECT_TRUE(unread(in).count("general.quantization_version")) << "nothing depends on it";
  ASSERT_EQ(in.memory.size(), 1u);
  EXPECT_EQ(in.memory[0].options.n_ctx, 1000);
  EXPECT_GE(in.memory[0].figures.cache_bytes, int64_t{1000} * 30 * 2 * 192 * 2);
  EXPECT_GT(in.memory[0].figures.arena_bytes, 0);
  EXPECT_GT(in.memory[0].available_bytes, 0);
}

TEST(Inspect, BothReportsSayTheSame) {
  ASSAY_REQUIRE_FILE(test::shared("goldens/tiny/llama-bias.gguf"));
  InspectOptions options;
  options.context.n_threads = 1;
  const Inspection in = inspect(test::shared("goldens/tiny/llama-bias.gguf").string(), options);
  EXPECT_THAT(in.problems, IsEmpty());
  const boost::json::object json = boost::json::parse(in.to_json()).as_object();
  const std::string text = in.to_text();
  EXPECT_EQ(json.at("architecture").as_string(), "llama");
  EXPECT_EQ(json.at("metadata").as_array().size(), in.metadata.size());
  ASSERT_EQ(json.at("tensors").as_array().size(), in.tensors.size());
  EXPECT_EQ(json.at("memory").at("cache_bytes").to_number<int64_t>(), in.memory.at(0).figures.cache_bytes);
  EXPECT_TRUE(json.at("problems").as_array().empty());
  for (size_t i = 0; i < in.tensors.size(); ++i) {
    const boost::json::value& tensor = json.at("tensors").as_array()[i];
    EXPECT_EQ(tensor.at("name").as_string(), in.tensors[i].name);
    EXPECT_EQ(tensor.at("offset").to_number<int64_t>(), in.tensors[i].offset);
    EXPECT_THAT(text, HasSubstr(in.tensors[i].name));
  }
  for (const MetadataFact& found : in.metadata)
    EXPECT_THAT(text, HasSubstr((found.read ? "\n  " : "\n- ") + found.key));
}

TEST(Inspect, AVocabularyHasNoProblem) {
  ASSAY_REQUIRE_FILE(test::shared("vectors/tokenizers/ggml-vocab-llama-bpe.gguf"));
  const Inspection in = inspect(test::shared("vectors/tokenizers/ggml-vocab-llama-bpe.gguf").string());
  EXPECT_THAT(in.problems, IsEmpty());
  EXPECT_TRUE(in.vocabulary_only);
  EXPECT_THAT(in.memory, IsEmpty());
  EXPECT_TRUE(fact(in, "tokenizer.ggml.merges").read);
  EXPECT_TRUE(fact(in, "llama.block_count").read);
  EXPECT_THAT(in.to_text(), HasSubstr("a vocabulary without weights"));
  EXPECT_TRUE(boost::json::parse(in.to_json()).at("memory").is_null());
}

TEST(Inspect, TellsWhatCannotBeServed) {
  const test::TempFolder folder;
  const std::string path = folder / "m.gguf";
  test::GgufWriter writer;
  writer.set("general.architecture", "mystery\xff")
      .set("tokenizer.ggml.model", "unheard")
      .set("extra", std::vector<int32_t>(20, 7));
  writer.tensor("t", {2, 4}, std::vector<float>(8)).write(path);
  const Inspection in = inspect(path);
  ASSERT_EQ(in.problems.size(), 2u);
  EXPECT_EQ(in.problems[0].part, "model");
  EXPECT_EQ(in.problems[0].code, Errc::unsupported);
  EXPECT_EQ(in.problems[1].part, "tokenizer");
  EXPECT_EQ(in.tensors.size(), 1u);
  EXPECT_EQ(fact(in, "extra").json, "[7, 7, 7, 7, 7, 7, 7, 7]");
  EXPECT_FALSE(fact(in, "extra").read);
  EXPECT_EQ(boost::json::parse(in.to_json()).at("problems").as_array().size(), 2u);
  EXPECT_THAT(in.to_text(), HasSubstr("problem: model: "));
}

TEST(Inspect, ABadFileIsAnError) {
  const test::TempFolder folder;
  std::ofstream(folder / "m.gguf") << "GGUF";
  EXPECT_THROW(inspect(folder / "m.gguf"), Error);
  EXPECT_THROW(inspect(folder / "missing.gguf"), Error);
}

}  // namespace
}  // namespace assay
