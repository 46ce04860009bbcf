// Conversions against what llama.cpp's converter made of the same folders (tools/goldens/convert.py), and folders that have to be refused.
#include "assay/convert.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>

#include "assay/error.h"
#include "gguf/file.h"
#include "num/f16.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

uint64_t fnv(std::string_view bytes) {
  uint64_t h = 0xCBF29CE484222325u;
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    h = (h ^ word) * 0x100000001B3u;
  }
  return h;
}

uint64_t fnv(std::span<const std::byte> bytes) { return fnv(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())); }

std::string text(const json::value& value) { return std::string(value.as_string()); }

// As the generator: a hash of name and place, 20 bits, from -0.5 to 0.5.
std::string random_values(const std::string& name, int64_t n, const std::string& dtype) {
  const uint64_t seed = fnv(name);
  std::string bytes;
  for (int64_t i = 1; i <= n; ++i) {
    uint64_t z = seed + static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    const float x = static_cast<float>(static_cast<int64_t>(z >> 44) - (1 << 19)) * 0x1p-20f;
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const auto half = dtype == "F16" ? num::float_to_half(x) : static_cast<uint16_t>(bits >> 16);
    dtype == "F32" ? bytes.append(reinterpret_cast<const char*>(&bits), 4) : bytes.append(reinterpret_cast<const char*>(&half), 2);
  }
  return bytes;
}

void write(const fs::path& path, std::string_view bytes) { std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size())); }

struct StoredFact {
  std::string name, dtype;
  std::vector<int64_t> shape;
};

void write_safetensors(const fs::path& path, const std::vector<StoredFact>& tensors) {
  json::object header;
  std::string data;
  for (const StoredFact& t : tensors) {
    int64_t n = 1;
    for (const int64_t dim : t.shape) n *= dim;
    const std::string part = random_values(t.name, n, t.dtype);
    header[t.name] = {{"dtype", t.dtype}, {"shape", json::value_from(t.shape)}, {"data_offsets", {data.size(), data.size() + part.size()}}};
    data += part;
  }
  const std::string head = json::serialize(header);
  const uint64_t n = head.size();
  write(path, std::string(reinterpret_cast<const char*>(&n), 8) + head + data);
}

std::string from_base64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int n = 0;
  for (const char c : text) {
    const size_t at = std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/").find(c);
    if (at == std::string_view::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(at);
    if ((n += 6) >= 8) out += static_cast<char>(bits >> (n -= 8));
  }
  return out;
}

const json::value& facts() {
  static const json::value kAll = [] {
    std::ifstream in(test::data("convert/families.json"), std::ios::binary);
    return json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
  }();
  return kAll;
}

// The tokenizer that all byte-level families share, less the members that one has otherwise.
std::string patched(const json::object& patch) {
  json::object whole = facts().at("tokenizer.json").as_object();
  for (const auto& [key, value] : patch) key == "ignore_merges" ? whole["model"].as_object()[key] = value : whole[key] = value;
  return json::serialize(whole);
}

// A family's folder, as the generator had it.
class ConvertedFolder {
 public:
  explicit ConvertedFolder(const std::string& family) : fact_(facts().at("families").at(family)) {
    for (const json::value& t : fact_.at("tensors").as_array()) tensors_.push_back({text(t.at(0)), text(t.at(1)), json::value_to<std::vector<int64_t>>(t.at(2))});
    write_weights();
    write_text("config.json", text(fact_.at("config")));
    for (const auto& [name, content] : facts().at("files").at(text(fact_.at("tokenizer"))).as_object()) {
      const std::string kind = text(content.at(0));
      write_text(name, kind == "base64" ? from_base64(text(content.at(1))) : kind == "patch" ? patched(content.at(1).as_object()) : text(content.at(1)));
    }
  }

  std::vector<StoredFact>& tensors() { return tensors_; }
  void write_weights() { write_safetensors(folder_ / "model.safetensors", tensors_); }
  void write_text(const std::string& name, const std::string& content) { write(folder_ / name, content); }
  json::object config() const { return json::parse(text(fact_.at("config"))).as_object(); }
  void set(const std::string& key, const json::value& value) {
    json::object all = config();
    all[key] = value;
    write_text("config.json", json::serialize(all));
  }
  fs::path path() const { return folder_.path(); }
  fs::path out() const { return out_ / "out.gguf"; }
  const json::value& fact() const { return fact_; }

  ConvertResult convert(const std::string& type = "auto", ConvertOptions options = {}) const {
    options.outtype = type;
    options.n_threads = 2;
    return assay::convert(path(), out(), options);
  }
  // The message of a refusal; nothing is left behind.
  std::string refusal(Errc code, const std::string& type = "auto", const ConvertOptions& options = {}) const {
    try {
      convert(type, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code, code) << error.what();
      EXPECT_TRUE(fs::is_empty(out_.path()));
      return error.what();
    }
    return "converted";
  }

 private:
  test::TempFolder folder_, out_;
  json::value fact_;
  std::vector<StoredFact> tensors_;
};

void expect_keys(const gguf::File& file, const json::object& expected) {
  size_t n_found = 0;
  for (const gguf::Entry& entry : file.metadata().entries()) {
    const std::string key(entry.key);
    if (key.starts_with("general.")) continue;
    ++n_found;
    const json::value* fact = expected.if_contains(key);
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
      EXPECT_EQ(bytes, text(fact->at(3))) << key;
    } else {
      std::string hex;
      for (const char c : bytes) {
        constexpr const char* kDigits = "0123456789abcdef";
        hex += {kDigits[static_cast<unsigned char>(c) >> 4], kDigits[c & 15]};
      }
      EXPECT_EQ(hex, text(fact->at(3))) << key;
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
    EXPECT_EQ(tensor::traits(t.view.dtype).name, text(fact->at(1 + 2 * i_type))) << t.name;
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

class Families : public testing::TestWithParam<std::string> {};

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
      EXPECT_GT(result.n_texts_checked, 10);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(names_of_families()), [](const auto& one) { return one.param; });

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
  const fs::path between = folder.out().parent_path() / "between.gguf", quantised = folder.out().parent_path() / "quantised.gguf";
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
  write_safetensors(folder.path() / "model-00001-of-00002.safetensors", {tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(half)});
  write_safetensors(folder.path() / "model-00002-of-00002.safetensors", {tensors.begin() + static_cast<std::ptrdiff_t>(half), tensors.end()});
  json::object map;
  for (size_t i = 0; i < tensors.size(); ++i) map[tensors[i].name] = i < half ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
  const auto index = [&](const json::object& weight_map) { write(folder.path() / "model.safetensors.index.json", json::serialize(json::object{{"weight_map", weight_map}})); };
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

TEST(Convert, FoldersThatAreRefusedSayWhy) {
  const auto says = [](const std::string& found, const std::string& part) { EXPECT_NE(found.find(part), std::string::npos) << found << "\n  needs: " << part; };
  {
    ConvertedFolder folder("llama");
    folder.set("architectures", {"MambaForCausalLM"});
    const std::string refusal = folder.refusal(Errc::unsupported);
    says(refusal, "'MambaForCausalLM' is not known");
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
