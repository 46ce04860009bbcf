// Conversions against what llama.cpp's converter made of the same folders (tools/goldens/convert.py), and folders that
// have to be refused.
#include "assay/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>

#include "gguf/file.h"
#include "support/convert_folder.h"
#include "text/from_gguf.h"

namespace assay {
namespace {

using namespace converting::testing;

void expect_keys(const gguf::File& file, const json::object& expected) {
  size_t n_found = 0;
  for (const gguf::Entry& entry : file.metadata().entries()) {
    const std::string key(entry.key);
    if (key.starts_with("general.")) continue;
    ++n_found;
    const json::value* fact = expected.if_contains(key);
    if (fact == nullptr &&
        key ==
            "modern-bert.attention.layer_norm_epsilon") {  // theirs has it of some folders alone, and readers need it
      --n_found;
      continue;
    }
    if (fact == nullptr) {
      ADD_FAILURE() << key << " is not in the converter's file";
      continue;
    }
    EXPECT_EQ(static_cast<int64_t>(entry.type), fact->at(0).to_number<int64_t>()) << key;
    const std::string_view bytes(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size());
    if (entry.type == gguf::ValueType::array) {
      EXPECT_EQ(static_cast<int64_t>(entry.element_type), fact->at(1).to_number<int64_t>()) << key;
      EXPECT_EQ(static_cast<int64_t>(entry.count), fact->at(2).to_number<int64_t>()) << key;
      EXPECT_EQ(fnv(bytes), fact->at(3).to_number<uint64_t>()) << key;
    } else if (entry.type == gguf::ValueType::string) {
      EXPECT_EQ(bytes, string_of(fact->at(3))) << key;
    } else {
      std::string hex;
      for (const char c : bytes) {
        constexpr const char* kDigits = "0123456789abcdef";
        hex += {kDigits[static_cast<unsigned char>(c) >> 4], kDigits[c & 15]};
      }
      EXPECT_EQ(hex, string_of(fact->at(3))) << key;
    }
  }
  for (const auto& member : expected) EXPECT_TRUE(file.metadata().has(member.key())) << member.key() << " is missing";
  EXPECT_EQ(n_found, expected.size());
}

// Facts: the shape, then type and digest for each of F32, F16 and BF16.
void expect_tensors(const gguf::File& file, const json::object& expected, size_t i_type) {
  EXPECT_EQ(file.tensors().size(), expected.size());
  for (const gguf::Tensor& t : file.tensors()) {
    const json::value* fact = expected.if_contains(t.name);
    if (fact == nullptr) {
      ADD_FAILURE() << t.name << " is not in the converter's file";
      continue;
    }
    EXPECT_EQ(tensor::traits(t.view.dtype).name, string_of(fact->at(1 + 2 * i_type))) << t.name;
    const std::vector<int64_t> shape(t.view.shape.dims.begin(), t.view.shape.dims.begin() + t.view.shape.rank);
    EXPECT_EQ(shape, json::value_to<std::vector<int64_t>>(fact->at(0))) << t.name;
    EXPECT_EQ(fnv(t.view.data), fact->at(2 + 2 * i_type).to_number<uint64_t>()) << t.name;
  }
}

std::vector<std::string> names_of_families() {
  std::vector<std::string> names;
  for (const auto& member : facts().at("families").as_object()) names.emplace_back(member.key());
  return names;
}

class Families : public ::testing::TestWithParam<std::string> {};

TEST_P(Families, EqualTheirConverterTensorForTensorAndKeyForKey) {
  const ConvertedFolder folder(GetParam());
  constexpr std::array kTypes = {"f32", "f16", "bf16"};
  for (size_t i = 0; i < kTypes.size(); ++i) {
    SCOPED_TRACE(kTypes[i]);
    const ConvertResult result = folder.convert(kTypes[i]);
    const gguf::File file = gguf::File::open(folder.out());
    expect_tensors(file, folder.fact().at("outputs").as_object(), i);
    expect_keys(file, folder.fact().at("keys").as_object());
    EXPECT_EQ(result.bytes, fs::file_size(folder.out()));
    if (fs::exists(folder.path() / "tokenizer.json")) {
      EXPECT_GT(result.n_texts_checked, 10) << json::serialize(json::value_from(result.notes));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, Families, ::testing::ValuesIn(names_of_families()),
                         [](const auto& one) { return one.param; });

// Ids that the tokenizers package gives to the same texts (`ids` of the goldens).
TEST(Convert, TheNewFilesTokenizerIsTheFolders) {
  std::set<std::string> seen;
  for (const auto& member : facts().at("families").as_object()) {
    const std::string kind = string_of(member.value().at("tokenizer"));
    const json::value* expected = facts().at("ids").as_object().if_contains(kind);
    if (expected == nullptr || expected->is_null() || !seen.insert(kind).second) continue;
    SCOPED_TRACE(kind);
    const ConvertedFolder folder{std::string(member.key())};
    folder.convert("f16");
    const gguf::File file = gguf::File::open(folder.out());
    const auto tokenizer = text::make_tokenizer(file.metadata());
    const json::array& texts = facts().at("texts").as_array();
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::vector<TokenId> found =
          tokenizer->encode(string_of(texts[i]), {.parse_special = true, .add_bos = false, .add_eos = false});
      EXPECT_EQ(found, json::value_to<std::vector<TokenId>>(expected->at(i))) << string_of(texts[i]);
    }
  }
  EXPECT_GE(seen.size(), 12u);
}

// SentencePiece's merges without its scores: the same ids by their order.
TEST(Convert, AVocabularyOfPiecesNeedsNoTokenizerModel) {
  ConvertedFolder folder("llama");
  fs::remove(folder.path() / "tokenizer.model");
  for (const auto& [name, content] : facts().at("files").at("gemma4/None").as_object())
    folder.write_text(std::string(name), string_of(content.at(1)));
  for (StoredFact& t : folder.tensors()) {
    if (t.shape[0] == 384) t.shape[0] = 400;
  }
  folder.write_weights();
  folder.set("vocab_size", 400);
  EXPECT_GT(folder.convert("f16").n_texts_checked, 10);
  const gguf::File file = gguf::File::open(folder.out());
  const auto tokenizer = text::make_tokenizer(file.metadata());
  const json::array& texts = facts().at("texts").as_array();
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<TokenId> found =
        tokenizer->encode(string_of(texts[i]), {.parse_special = true, .add_bos = false, .add_eos = false});
    EXPECT_EQ(found, json::value_to<std::vector<TokenId>>(facts().at("ids").at("gemma4/None").at(i)))
        << string_of(texts[i]);
  }
}

TEST(Convert, AutoIsTheTypeOfTheFoldersMatricesAndThreadsChangeNothing) {
  const ConvertedFolder folder("llama");
  EXPECT_EQ(folder.convert().type, "BF16");
  const gguf::File one = gguf::File::open(folder.out());
  std::vector<uint64_t> digests;
  for (const gguf::Tensor& t : one.tensors()) digests.push_back(fnv(t.view.data));
  ConvertOptions options;
  options.n_threads = 5;
  assay::convert(folder.path(), folder.out(), options);
  const gguf::File five = gguf::File::open(folder.out());
  for (size_t i = 0; i < digests.size(); ++i) EXPECT_EQ(fnv(five.tensors()[i].view.data), digests[i]);
}

// In one pass the same bytes as by a file between.
TEST(Convert, AQuantisedTypeIsWhatQuantizeMakesOfTheConvertedFile) {
  const ConvertedFolder folder("qwen2");
  folder.convert("bf16");
  const fs::path between = folder.out().parent_path() / "between.gguf",
                 quantised = folder.out().parent_path() / "quantised.gguf";
  fs::rename(folder.out(), between);
  QuantizeOptions options;
  options.type = "Q4_0";
  quantize(between, quantised, options);
  folder.convert("q4_0");
  const gguf::File a = gguf::File::open(quantised), b = gguf::File::open(folder.out());
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (size_t i = 0; i < a.tensors().size(); ++i) {
    EXPECT_EQ(a.tensors()[i].name, b.tensors()[i].name);
    EXPECT_EQ(a.tensors()[i].view.dtype, b.tensors()[i].view.dtype) << a.tensors()[i].name;
    EXPECT_EQ(fnv(a.tensors()[i].view.data), fnv(b.tensors()[i].view.data)) << a.tensors()[i].name;
  }
}

TEST(Convert, ShardsAreOneModel) {
  const ConvertedFolder folder("llama");
  folder.convert("f32");
  const uint64_t whole = fnv(gguf::File::open(folder.out()).tensors()[3].view.data);
  fs::remove(folder.path() / "model.safetensors");
  ConvertedFolder split("llama");
  std::vector<StoredFact> tensors = split.tensors();
  const size_t half = tensors.size() / 2;
  write_safetensors(folder.path() / "model-00001-of-00002.safetensors",
                    {tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(half)});
  write_safetensors(folder.path() / "model-00002-of-00002.safetensors",
                    {tensors.begin() + static_cast<std::ptrdiff_t>(half), tensors.end()});
  json::object map;
  for (size_t i = 0; i < tensors.size(); ++i)
    map[tensors[i].name] = i < half ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
  const auto index = [&](const json::object& weight_map) {
    write(folder.path() / "model.safetensors.index.json", json::serialize(json::object{{"weight_map", weight_map}}));
  };
  index(map);
  folder.convert("f32");
  EXPECT_EQ(fnv(gguf::File::open(folder.out()).tensors()[3].view.data), whole);
  fs::remove(folder.out());

  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "x.bin", "", "absent.safetensors"}) {
    json::object bad = map;
    bad[tensors[0].name] = name;
    index(bad);
    EXPECT_NE(folder.refusal(Errc::bad_file), "converted") << name;
  }
  json::object foreign = map;
  foreign["not.there"] = "model-00001-of-00002.safetensors";
  index(foreign);
  EXPECT_NE(folder.refusal(Errc::bad_file).find("'not.there'"), std::string::npos);
  json::object lacking = map;
  lacking.erase(tensors[0].name);
  index(lacking);
  EXPECT_NE(folder.refusal(Errc::bad_file).find("nothing of it"), std::string::npos);
}

TEST(Convert, LinksAreFollowedAndSaidAndOneFileIsOneShard) {
  const ConvertedFolder folder("llama");
  const test::TempFolder elsewhere;
  fs::rename(folder.path() / "model.safetensors", elsewhere / "blob");
  fs::create_symlink(elsewhere / "blob", folder.path() / "model.safetensors");
  const ConvertResult result = folder.convert("f16");
  EXPECT_TRUE(std::any_of(result.notes.begin(), result.notes.end(),
                          [](const std::string& note) { return note.find("is a link to") != std::string::npos; }));
  fs::remove(folder.out());
  fs::remove(folder.path() / "model.safetensors");
  for (const char* name : {"a.safetensors", "b.safetensors"})
    fs::create_symlink(elsewhere / "blob", folder.path() / name);
  json::object map;
  for (const json::value& t : folder.fact().at("tensors").as_array())
    map[string_of(t.at(0))] = map.empty() ? "a.safetensors" : "b.safetensors";
  write(folder.path() / "model.safetensors.index.json", json::serialize(json::object{{"weight_map", map}}));
  EXPECT_NE(folder.refusal(Errc::bad_file).find("are one file"), std::string::npos);
}

TEST(Convert, PicklesAreNeverOpened) {
  for (const char* name : {"pytorch_model.bin", "model.pt", "model.pth", "model.ckpt"}) {
    const ConvertedFolder folder("llama");
    fs::remove(folder.path() / "model.safetensors");
    write(folder.path() / name, "x");
    EXPECT_NE(folder.refusal(Errc::unsupported).find("safe_serialization=True"), std::string::npos) << name;
  }
  const std::string rest(200, 'x');
  for (const std::string& pickle :
       {"PK\3\4" + rest, "\x80\x02}q" + rest, "\x80\x04\x95" + rest,
        std::string("\x80\x04\x95\x0a\0\0\0\0\0\0\0}\x94\x8c\x01"
                    "a\x94K\x01s.",
                    21),                  // pickle.dumps({'a': 1}), its frame's length within the first eight bytes
        std::string("\x80\x04N.", 4)}) {  // pickle.dumps(None)
    const ConvertedFolder folder("llama");
    write(folder.path() / "model.safetensors", pickle);
    EXPECT_NE(folder.refusal(Errc::unsupported).find("is a pickle"), std::string::npos) << pickle.size();
  }
}

TEST(Convert, QuantisedCheckpointsAreRefusedByName) {
  for (const char* method : {"fp8", "gptq", "awq", "bitsandbytes", "compressed-tensors", "mxfp4"}) {
    ConvertedFolder folder("llama");
    folder.set("quantization_config", {{"quant_method", method}});
    EXPECT_NE(folder.refusal(Errc::unsupported).find(method), std::string::npos);
  }
  ConvertedFolder folder("qwen2");
  for (StoredFact& t : folder.tensors()) {
    if (t.name.ends_with("o_proj.weight")) t.dtype = "F8_E4M3";
  }
  folder.write_weights();
  const std::string refusal = folder.refusal(Errc::unsupported);
  EXPECT_NE(refusal.find("F8_E4M3"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("o_proj.weight"), std::string::npos) << refusal;
}

TEST(Convert, StatesThatAFileCannotDescribeAreRefusedByName) {
  const auto refuses = [](const char* family, const char* key, const json::value& value,
                          Errc code = Errc::unsupported) {
    ConvertedFolder folder(family);
    folder.set(key, value);
    const std::string refusal = folder.refusal(code);
    EXPECT_NE(refusal.find(key), std::string::npos) << family << ": " << refusal;
  };
  refuses("mamba", "use_bias", true);
  refuses("mamba", "use_conv_bias", false);
  refuses("mamba", "hidden_act", "gelu");
  refuses("mamba2", "time_step_limit", json::array{0.001, 0.1});
  refuses("mamba2", "num_heads", 7, Errc::bad_file);
  refuses("mamba2", "n_groups", 0, Errc::bad_file);
  refuses("lfm2", "conv_bias", true);
  refuses("lfm2", "layer_types", json::array{"conv", "sliding_attention"});
  refuses("lfm2", "layer_types", json::array{"conv"}, Errc::bad_file);
  refuses("granitehybrid", "mamba_proj_bias", true);
  refuses("granitehybrid_attention", "position_embedding_type", "nope");
  refuses("nemotron_h", "hybrid_override_pattern", "M-X");
  refuses("nemotron_h", "mlp_hidden_act", "silu");
  refuses("falcon_h1", "ssm_multipliers", json::array{1, 2}, Errc::bad_file);
  refuses("falcon_h1_norm", "mamba_norm_before_gate", true);
  refuses("jamba", "attn_layer_offset", 2, Errc::bad_file);
  refuses("llama4", "use_qk_norm", false);
}

const json::object kYarn = {{"rope_type", "yarn"},
                            {"rope_theta", 10000},
                            {"factor", 4},
                            {"original_max_position_embeddings", 128},
                            {"partial_rotary_factor", 0.5}};

// Files of these families say that rotations are not scaled.
TEST(Convert, ScalingThatAFileDeniesIsRefused) {
  for (const char* family : {"exaone_moe", "cohere2moe", "cohere", "cohere2", "nemotron", "eurobert"}) {
    ConvertedFolder folder(family);
    folder.set("rope_parameters", kYarn);
    EXPECT_NE(folder.refusal(Errc::unsupported).find("rope scaling \"yarn\""), std::string::npos) << family;
  }
}

TEST(Convert, RoundedCornersOfGptOssAreRefused) {
  ConvertedFolder folder("gpt_oss");
  folder.set("rope_parameters", kYarn);
  EXPECT_NE(folder.refusal(Errc::unsupported).find("truncate"), std::string::npos);
}

// mscale and mscale_all_dim have no keys; what they make of YaRN's magnitude has one.
TEST(Convert, YarnsMagnitudeIsStatedWhereTheFileMeansAnother) {
  const auto stated = [](const char* family, const char* key, double mscale, double all) {
    ConvertedFolder folder(family);
    json::object yarn = folder.config()["rope_parameters"].as_object();
    yarn["mscale"] = mscale, yarn["mscale_all_dim"] = all;
    folder.set("rope_parameters", yarn);
    folder.convert("f16");
    return gguf::File::open(folder.out()).metadata().find_float(key);
  };
  constexpr double kLog4 = 1.3862943611198906, kLog16 = 2.772588722239781;  // of the factors
  EXPECT_NEAR(stated("llama_tied_yarn", "llama.rope.scaling.yarn_attn_factor", 1, 1).value(), 1, 1e-7);
  EXPECT_NEAR(stated("llama_tied_yarn", "llama.rope.scaling.yarn_attn_factor", 0.5, 2).value(),
              (0.05 * kLog4 + 1) / (0.2 * kLog4 + 1), 1e-7);
  EXPECT_FALSE(stated("deepseek3", "deepseek2.rope.scaling.yarn_attn_factor", 0.5, 0.5));
  EXPECT_NEAR(stated("deepseek3", "deepseek2.rope.scaling.yarn_attn_factor", 0.5, 1).value(),
              (0.05 * kLog4 + 1) / (0.1 * kLog4 + 1), 1e-7);
  EXPECT_FALSE(stated("ministral3", "mistral3.rope.scaling.yarn_attn_factor", 1, 0.5));
  EXPECT_NEAR(stated("ministral3", "mistral3.rope.scaling.yarn_attn_factor", 0.5, 1).value(),
              (0.05 * kLog16 + 1) / (0.1 * kLog16 + 1), 1e-7);
}

// A head may be narrower than its share of the model's width, and its share of that turns.
TEST(Convert, NemotronTurnsAShareOfItsHead) {
  ConvertedFolder folder("nemotron");
  folder.set("head_dim", 16);
  folder.convert("f16");
  EXPECT_EQ(gguf::File::open(folder.out()).metadata().find_unsigned("nemotron.rope.dimension_count"), 8u);
}

TEST(Convert, AHeadBesideTheKeyThatItIsTheEmbedding) {
  for (const bool is_the_embedding : {true, false}) {
    ConvertedFolder folder("qwen3");
    folder.set("tie_word_embeddings", true);
    StoredFact head = *std::ranges::find(folder.tensors(), "model.embed_tokens.weight", &StoredFact::name);
    head.name = "lm_head.weight";
    if (!is_the_embedding) head.values_of = head.name;
    std::erase_if(folder.tensors(), [](const StoredFact& t) { return t.name == "lm_head.weight"; });
    folder.tensors().push_back(head);
    folder.write_weights();
    const ConvertResult result = folder.convert("f16");
    EXPECT_EQ(gguf::File::open(folder.out()).find("output.weight"), nullptr);
    EXPECT_EQ(std::ranges::any_of(result.notes,
                                  [](const std::string& note) {
                                    return note.starts_with("'lm_head.weight' is not 'model.embed_tokens.weight'");
                                  }),
              !is_the_embedding)
        << json::serialize(json::value_from(result.notes));
  }
  ConvertedFolder folder("nemotron_h");  // whose class ties nothing
  folder.set("tie_word_embeddings", true);
  folder.convert("f16");
  EXPECT_NE(gguf::File::open(folder.out()).find("output.weight"), nullptr);
}

// Qwen3-Embedding of 4B and 8B: tensors without "model.", tie_word_embeddings false, and no head.
TEST(Convert, AModelForEmbeddingsNeedsNoHead) {
  ConvertedFolder folder("qwen3");
  folder.set("tie_word_embeddings", false);
  std::erase_if(folder.tensors(), [](const StoredFact& t) { return t.name == "lm_head.weight"; });
  folder.write_weights();
  EXPECT_NE(folder.refusal(Errc::bad_file).find("lm_head.weight"), std::string::npos);
  for (StoredFact& t : folder.tensors()) t.name.erase(0, std::string_view("model.").size());
  folder.write_weights();
  const ConvertResult result = folder.convert("f16");
  EXPECT_EQ(gguf::File::open(folder.out()).find("output.weight"), nullptr);
  EXPECT_TRUE(std::ranges::any_of(
      result.notes, [](const std::string& note) { return note.find("a model without a head") != std::string::npos; }));
}

// What the converter makes of DeepSeek V3, under another name, and the indexers' tensors and keys beside it.
void expect_indexers(const std::string& of, const std::string& architecture, const std::string& from,
                     const std::vector<bool>& layers, const std::function<void(json::object& config)>& change) {
  ConvertedFolder folder(of);
  json::object config = folder.config();
  config["index_n_heads"] = 6, config["index_head_dim"] = 16, config["index_topk"] = 5;
  change(config);
  folder.write_text("config.json", json::serialize(config));
  const struct {
    const char *stored, *name;
    std::vector<int64_t> shape;
    bool is_f32;
  } parts[] = {{"wq_b.weight", "attn_q_b.weight", {96, 32}, false},
               {"wk.weight", "attn_k.weight", {16, 64}, false},
               {"k_norm.weight", "k_norm.weight", {16}, true},
               {"k_norm.bias", "k_norm.bias", {16}, true},
               {"weights_proj.weight", "proj.weight", {6, 64}, true}};
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (const auto& part : parts) {
      if (layers[layer])
        folder.tensors().push_back(
            {"model.layers." + std::to_string(layer) + ".self_attn.indexer." + part.stored, "BF16", part.shape});
    }
  }
  folder.write_weights();
  folder.convert("bf16");
  const gguf::File file = gguf::File::open(folder.out());
  size_t n_found = 0;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (const auto& part : parts) {
      const gguf::Tensor* found = file.find("blk." + std::to_string(layer) + ".indexer." + part.name);
      ASSERT_EQ(found != nullptr, layers[layer]) << part.name;
      if (found == nullptr) continue;
      ++n_found;
      EXPECT_EQ(found->view.dtype, part.is_f32 ? tensor::DType::F32 : tensor::DType::BF16) << part.name;
      const auto n = static_cast<int64_t>(found->view.shape.elements());
      const std::string stored =
          random_values("model.layers." + std::to_string(layer) + ".self_attn.indexer." + part.stored, n, "BF16");
      std::string expected = stored;
      if (part.is_f32) {  // a BF16 is the upper half of a float
        expected.clear();
        for (size_t i = 0; i < stored.size(); i += 2) expected += std::string(2, '\0') + stored.substr(i, 2);
      }
      EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(expected)), found->view.data)) << part.name;
    }
  }
  const json::object& outputs = folder.fact().at("outputs").as_object();
  EXPECT_EQ(file.tensors().size(), outputs.size() + n_found);
  for (const auto& member : outputs) {
    const gguf::Tensor* found = file.find(std::string(member.key()));
    ASSERT_NE(found, nullptr) << member.key();
    EXPECT_EQ(fnv(found->view.data), member.value().at(6).to_number<uint64_t>()) << member.key();
  }
  const auto key = [&](const char* name) { return architecture + ".attention.indexer." + name; };
  EXPECT_EQ(file.metadata().find_string("general.architecture"), architecture);
  EXPECT_EQ(file.metadata().require_unsigned(key("head_count")), 6u);
  EXPECT_EQ(file.metadata().require_unsigned(key("key_length")), 16u);
  EXPECT_EQ(file.metadata().require_unsigned(key("top_k")), 5u);
  for (const auto& member : folder.fact().at("keys").as_object()) {
    std::string name(member.key());
    if (name.starts_with(from + ".")) name = architecture + name.substr(from.size());
    EXPECT_TRUE(file.metadata().has(name)) << name;
  }
}

TEST(Convert, IndexersAreTakenBesideLatentAttention) {
  expect_indexers("deepseek3", "deepseek32", "deepseek2", {true, true},
                  [](json::object& config) { config["architectures"] = json::array{"DeepseekV32ForCausalLM"}; });
  for (const std::vector<bool>& layers : {std::vector<bool>{true, true}, {true, false}}) {
    expect_indexers("glm4_moe_lite", "glm-dsa", "deepseek2", layers, [&](json::object& config) {
      config["architectures"] = json::array{"GlmMoeDsaForCausalLM"};
      if (!layers[1]) config["indexer_types"] = json::array{"full", "shared"};
    });
  }
}

TEST(Convert, AModernBertHasTheEpsilonThatReadersWant) {
  const ConvertedFolder folder("modern_bert");
  folder.convert("f32");
  EXPECT_TRUE(gguf::File::open(folder.out()).metadata().has("modern-bert.attention.layer_norm_epsilon"));
}

// Python writes Infinity into config.json as it is, transformers 5 an object for it.
TEST(Convert, AnInfiniteTimeStepIsNoLimit) {
  ConvertedFolder folder("mamba2");
  folder.set("time_step_limit", json::array{0.0, "@"});
  std::ifstream in(folder.path() / "config.json");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  text.replace(text.find("\"@\""), 3, "Infinity");
  folder.write_text("config.json", text);
  EXPECT_GT(folder.convert("f16").bytes, 0u);
}

TEST(Convert, FoldersThatAreRefusedSayWhy) {
  const auto says = [](const std::string& found, const std::string& part) {
    EXPECT_NE(found.find(part), std::string::npos) << found << "\n  needs: " << part;
  };
  {
    ConvertedFolder folder("llama");
    folder.set("architectures", {"RwkvForCausalLM"});
    const std::string refusal = folder.refusal(Errc::unsupported);
    says(refusal, "'RwkvForCausalLM' is not known");
    says(refusal, "LlamaForCausalLM, ");
    folder.set("hidden_act", "gelu");
    says(folder.refusal(Errc::unsupported), "hidden_act is 'gelu'");
    folder.set("rope_parameters", {{"rope_type", "dynamic"}, {"rope_theta", 10000}, {"factor", 2}});
    says(folder.refusal(Errc::unsupported), "\"dynamic\"");
    folder.set("attention_bias", true);
    says(folder.refusal(Errc::bad_file), "no blk.0.attn_q.bias");
    folder.set("num_hidden_layers", 3);
    says(folder.refusal(Errc::bad_file), "model.layers.2.");
    folder.set("num_hidden_layers", 1);
    says(folder.refusal(Errc::unsupported), "no rule of llama takes it");
    folder.set("num_attention_heads", 5);
    EXPECT_NE(folder.refusal(Errc::bad_file), "converted");
    folder.set("quantization_config", {{"quant_method", "gptq"}});
    says(folder.refusal(Errc::unsupported), "'gptq'");
    folder.set("vision_config", json::object{});
    says(folder.refusal(Errc::unsupported), "--text-only");
    folder.set("vocab_size", 100);
    EXPECT_NE(folder.refusal(Errc::bad_file), "converted");
  }
  {
    ConvertedFolder folder("qwen2");
    says(folder.refusal(Errc::bad_request, "Q9_Z"), "Q9_Z");
    ConvertOptions options;
    options.pre_tokenizer = "nothing";
    says(folder.refusal(Errc::bad_request, "auto", options), "no such pre-tokenizer");
    fs::remove(folder.path() / "tokenizer.json");
    says(folder.refusal(Errc::bad_file), "tokenizer");
    fs::remove(folder.path() / "model.safetensors");
    says(folder.refusal(Errc::bad_file), "found neither");
    folder.write_text("pytorch_model.bin", "x");
    says(folder.refusal(Errc::unsupported), "is a pickle");
    folder.write_text("model.safetensors", std::string("PK\3\4") + std::string(100, 'x'));
    says(folder.refusal(Errc::unsupported), "is a pickle");
  }
}

TEST(Convert, APreTokenizerThatIsNotKnownIsPrinted) {
  ConvertedFolder folder("qwen2");
  std::ifstream in(folder.path() / "tokenizer.json");
  json::object tokenizer = json::parse(std::string(std::istreambuf_iterator<char>(in), {})).as_object();
  tokenizer["pre_tokenizer"].at("pretokenizers").at(0).at("pattern").as_object()["Regex"] = "[a-z]+|.";
  folder.write_text("tokenizer.json", json::serialize(tokenizer));
  const std::string refusal = folder.refusal(Errc::unsupported);
  EXPECT_NE(refusal.find("[a-z]+|."), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("--pre"), std::string::npos) << refusal;
  ConvertOptions options;
  options.pre_tokenizer = "qwen2";  // which cuts otherwise: the check says so
  EXPECT_NE(folder.refusal(Errc::bad_file, "auto", options).find("differently"), std::string::npos);
  options.check = false;
  EXPECT_EQ(folder.convert("auto", options).n_texts_checked, 0);
}

// One tensor's values are replaced, so that one of them cannot be written.
TEST(Convert, ValuesThatTheTypeCannotHoldAreNamed) {
  ConvertedFolder folder("olmo2");  // F32
  const auto poke = [&](float value) {
    std::fstream file(folder.path() / "model.safetensors", std::ios::binary | std::ios::in | std::ios::out);
    uint64_t head = 0;
    file.read(reinterpret_cast<char*>(&head), 8);
    file.seekp(static_cast<std::streamoff>(8 + head + 4 * 70));  // of the first tensor
    file.write(reinterpret_cast<const char*>(&value), 4);
  };
  const std::string name = folder.tensors()[0].name;
  poke(70000.0f);
  const std::string large = folder.refusal(Errc::bad_file, "f16");
  EXPECT_NE(large.find("70000, which F16 cannot hold"), std::string::npos) << large;
  EXPECT_NE(large.find(name), std::string::npos) << large;
  EXPECT_EQ(folder.convert("bf16").n_tensors, 14);
  fs::remove(folder.out());
  poke(std::numeric_limits<float>::quiet_NaN());
  const std::string nan = folder.refusal(Errc::bad_file, "f32");
  EXPECT_NE(nan.find("row 1, column 6 is nan"), std::string::npos) << nan;
  ConvertOptions options;
  options.keep_nonfinite = true;
  EXPECT_FALSE(folder.convert("f32", options).cancelled);
}

TEST(Convert, AnInterruptionLeavesTheOldFile) {
  const ConvertedFolder folder("llama");
  write(folder.out(), "old");
  ConvertOptions options;
  int polls = 0;
  options.cancelled = [&] { return ++polls > 5; };
  EXPECT_TRUE(assay::convert(folder.path(), folder.out(), options).cancelled);
  EXPECT_EQ(fs::file_size(folder.out()), 3u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.out().parent_path()), {}), 1);
}

}  // namespace
}  // namespace assay
