// What we read in real files equals what Python's `gguf` package reads (tests/data/make_gguf_facts.py), line by line;
// and reading is fast.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "gguf/file.h"
#include "programs/patience.h"
#include "support/gguf_writer.h"
#include "support/shared_data.h"

namespace assay::gguf {
namespace {

class Digest {  // FNV-1a of 64 bits over items, each ended by a zero byte
 public:
  void add(std::string_view item) {
    for (char c : item) step(static_cast<unsigned char>(c));
    step(0);
  }
  std::string text() const { return fmt::format("{:016x}", state_); }

 private:
  void step(uint64_t byte) { state_ = (state_ ^ byte) * 0x100000001b3; }
  uint64_t state_ = 0xcbf29ce484222325;
};

template <class T>
std::string hex(T value) {
  unsigned char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  std::string text;
  for (unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string_view python_name(ValueType type) {
  constexpr std::string_view kNames[] = {"UINT8", "INT8",   "UINT16", "INT16",  "UINT32", "INT32",  "FLOAT32",
                                         "BOOL",  "STRING", "ARRAY",  "UINT64", "INT64",  "FLOAT64"};
  return kNames[static_cast<size_t>(type)];
}

void add_values(Digest& digest, const Metadata& data, const Entry& entry) {
  if (entry.type != ValueType::array) {
    switch (entry.type) {
      case ValueType::string: return digest.add(data.require_string(entry.key));
      case ValueType::f32: return digest.add(hex(static_cast<float>(data.require_float(entry.key))));
      case ValueType::f64: return digest.add(hex(data.require_float(entry.key)));
      case ValueType::boolean: return digest.add(*data.find_bool(entry.key) ? "1" : "0");
      default: return digest.add(fmt::to_string(*data.find_integer(entry.key)));
    }
  }
  switch (entry.element_type) {
    case ValueType::string:
      for (std::string_view text : data.require_strings(entry.key)) digest.add(text);
      return;
    case ValueType::f32:
      for (float value : std::vector<float>(*data.find_floats(entry.key))) digest.add(hex(value));
      return;
    case ValueType::boolean:
      for (bool value : std::vector<bool>(*data.find_bools(entry.key))) digest.add(value ? "1" : "0");
      return;
    default:
      for (int64_t value : std::vector<int64_t>(*data.find_integers(entry.key))) digest.add(fmt::to_string(value));
  }
}

std::string facts(const File& file) {
  std::string text = fmt::format("alignment {}\n", file.alignment());
  for (const Entry& entry : file.metadata().entries()) {
    Digest digest;
    add_values(digest, file.metadata(), entry);
    const bool is_array = entry.type == ValueType::array;
    text += fmt::format("entry {} {}{}{} {} {}\n", entry.key, python_name(entry.type), is_array ? " " : "",
                        is_array ? python_name(entry.element_type) : "", is_array ? entry.count : 1, digest.text());
  }
  for (const Tensor& tensor : file.tensors()) {
    std::string shape;
    for (int i = 0; i < tensor.view.shape.rank; ++i) {
      shape += fmt::format("{}{}", i == 0 ? "" : "x", tensor.view.shape.dims[static_cast<size_t>(i)]);
    }
    text += fmt::format("tensor {} {} {} {} {}\n", tensor.name, tensor::traits(tensor.view.dtype).name, shape,
                        tensor.file_offset, tensor.view.data.size());
  }
  return text;
}

std::string read_text(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void compare(const std::filesystem::path& path) {
  const std::string expected = read_text(test::data("gguf/" + path.stem().string() + ".txt"));
  ASSERT_FALSE(expected.empty());
  const std::string found = facts(File::open(path));
  std::istringstream expected_lines(expected), found_lines(found);
  for (std::string want, have; std::getline(expected_lines, want);) {
    std::getline(found_lines, have);
    ASSERT_EQ(have, want);
  }
  EXPECT_EQ(found.size(), expected.size());
}

TEST(GgufFacts, RealModels) {
  for (const auto& path : {test::smollm2(), test::gemma3()}) {
    ASSAY_REQUIRE_FILE(path);
    compare(path);
  }
}

TEST(GgufFacts, TinyModelsAndVocabularies) {
  for (const char* name :
       {"goldens/tiny/gemma3.gguf", "goldens/tiny/llama-bias.gguf", "goldens/tiny/llama-rope-yarn.gguf",
        "vectors/tokenizers/ggml-vocab-llama-spm.gguf", "vectors/tokenizers/ggml-vocab-qwen2.gguf"}) {
    ASSAY_REQUIRE_FILE(test::shared(name));
    compare(test::shared(name));
  }
}

TEST(GgufFacts, EveryFileThereIsCanBeRead) {
  int n_files = 0;
  for (const char* folder : {"goldens/tiny", "vectors/tokenizers"}) {
    ASSAY_REQUIRE_FILE(test::shared(folder));
    for (const auto& entry : std::filesystem::directory_iterator(test::shared(folder))) {
      if (entry.path().extension() != ".gguf") continue;
      EXPECT_GT(File::open(entry.path()).metadata().entries().size(), 10u) << entry.path();
      ++n_files;
    }
  }
  EXPECT_GE(n_files, 15);
}

double milliseconds(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

TEST(GgufSpeed, SixtyFourMegabytesOfMetadata) {
  test::GgufWriter writer;
  std::vector<std::string> tokens;
  for (int i = 0; i < 262'144; ++i) tokens.push_back("token" + std::to_string(i));
  writer.set("tokens", tokens);
  const test::Bytes vocabulary = writer.bytes();
  const double vocabulary_ms =
      milliseconds([&] { EXPECT_EQ(File::parse(vocabulary).metadata().find("tokens")->count, tokens.size()); });
  test::Bytes strings;  // 6 million empty ones
  test::append(strings, test::kGgufString);
  test::append(strings, uint64_t{6'000'000});
  strings.resize(strings.size() + 48'000'000);
  writer.raw_entry("short", test::kGgufArray, strings).set("numbers", std::vector<uint8_t>(10'000'000));
  const test::Bytes large = writer.bytes();
  EXPECT_GE(large.size(), size_t{60'000'000});
  const double large_ms = milliseconds([&] { EXPECT_EQ(File::parse(large).metadata().entries().size(), 3u); });
  std::printf("vocabulary of 262,144 strings: %.2f ms; %zu MB of metadata: %.1f ms\n", vocabulary_ms,
              large.size() / 1'000'000, large_ms);
  EXPECT_LE(large_ms, 1000 * test::kPatience);
}

}  // namespace
}  // namespace assay::gguf
