// Folders of the goldens for tests: tensors by their names' hashes, as tools/goldens/convert.py makes them, and the
// files beside them.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <boost/json.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "assay/convert.h"
#include "assay/error.h"
#include "num/f16.h"
#include "support/content.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace assay::converting::testing {

namespace fs = std::filesystem;
namespace json = boost::json;

inline uint64_t fnv(std::string_view bytes) {
  uint64_t h = 0xCBF29CE484222325u;
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    h = (h ^ word) * 0x100000001B3u;
  }
  return h;
}

inline uint64_t fnv(std::span<const std::byte> bytes) {
  return fnv(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

inline std::string string_of(const json::value& value) { return std::string(value.as_string()); }

// As the generator: a hash of name and place, 20 bits, from -0.5 to 0.5.
inline std::string random_values(const std::string& name, int64_t n, const std::string& dtype) {
  const uint64_t seed = fnv(name);
  std::string bytes;
  for (int64_t i = 1; i <= n; ++i) {
    uint64_t z = seed + static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    const float x = static_cast<float>(static_cast<int64_t>(z >> 44) - (1 << 19)) * 0x1p-20f;
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    if (dtype == "U8") {  // scales near 1
      bytes.push_back(static_cast<char>(name.ends_with("_scales") ? ((bits >> 8) & 31) + 110 : (bits >> 8) & 255));
      continue;
    }
    const auto half = dtype == "F16" ? num::float_to_half(x) : static_cast<uint16_t>(bits >> 16);
    if (dtype == "F8_E4M3") {
      bytes.push_back(static_cast<char>(bits >> 24));
      continue;
    }
    dtype == "F32" ? bytes.append(reinterpret_cast<const char*>(&bits), 4)
                   : bytes.append(reinterpret_cast<const char*>(&half), 2);
  }
  return bytes;
}

inline void write(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

struct StoredFact {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string values_of = name;  // the tensor whose values it has
};

inline void write_safetensors(const fs::path& path, const std::vector<StoredFact>& tensors) {
  json::object header;
  std::string data;
  for (const StoredFact& t : tensors) {
    int64_t n = 1;
    for (const int64_t dim : t.shape) n *= dim;
    const std::string part = random_values(t.values_of, n, t.dtype);
    header[t.name] = {{"dtype", t.dtype},
                      {"shape", json::value_from(t.shape)},
                      {"data_offsets", {data.size(), data.size() + part.size()}}};
    data += part;
  }
  const std::string head = json::serialize(header);
  const uint64_t n = head.size();
  write(path, std::string(reinterpret_cast<const char*>(&n), 8) + head + data);
}

inline std::string from_base64(std::string_view text) {
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

inline const json::value& facts() {
  static const json::value kAll = json::parse(test::content(test::data("convert/families.json")));
  return kAll;
}

// The tokenizer that all byte-level families share, less the members that one has otherwise.
inline std::string patched(const json::object& patch) {
  json::object whole = facts().at("tokenizer.json").as_object();
  for (const auto& [key, value] : patch)
    key == "ignore_merges" ? whole["model"].as_object()[key] = value : whole[key] = value;
  return json::serialize(whole);
}

// A family's folder, as the generator had it.
class ConvertedFolder {
 public:
  explicit ConvertedFolder(const std::string& family) : fact_(facts().at("families").at(family)) {
    for (const json::value& t : fact_.at("tensors").as_array())
      tensors_.push_back({string_of(t.at(0)), string_of(t.at(1)), json::value_to<std::vector<int64_t>>(t.at(2))});
    write_weights();
    write_text("config.json", string_of(fact_.at("config")));
    for (const auto& [name, content] : facts().at("files").at(string_of(fact_.at("tokenizer"))).as_object()) {
      const std::string kind = string_of(content.at(0));
      write_text(std::string(name), kind == "base64"  ? from_base64(string_of(content.at(1)))
                                    : kind == "patch" ? patched(content.at(1).as_object())
                                                      : string_of(content.at(1)));
    }
    if (const json::value* more = fact_.as_object().if_contains("files")) {
      for (const auto& [name, content] : more->as_object()) write_text(std::string(name), string_of(content));
    }
  }

  std::vector<StoredFact>& tensors() { return tensors_; }
  void write_weights() { write_safetensors(folder_ / "model.safetensors", tensors_); }
  void write_text(const std::string& name, const std::string& content) {
    fs::create_directories((folder_ / name).parent_path());
    write(folder_ / name, content);
  }
  json::object config() const { return json::parse(string_of(fact_.at("config"))).as_object(); }
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

}  // namespace assay::converting::testing
