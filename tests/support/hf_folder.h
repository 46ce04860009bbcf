// A folder of Hugging Face for tests: a tiny llama of random BF16 weights with a vocabulary of pieces, as
// tests/data/convert describes it.
#pragma once

#include <bit>
#include <boost/json.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "support/content.h"
#include "support/random_numbers.h"
#include "support/shared_data.h"

namespace assay::test {

inline std::string decoded_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int n = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((n += 6) >= 8) out += static_cast<char>(bits >> (n -= 8));
  }
  return out;
}

inline void write_hf_folder(const std::filesystem::path& folder) {
  namespace json = boost::json;
  const json::value facts = json::parse(content(data("convert/families.json")));
  const json::value& llama = facts.at("families").at("llama");
  const auto write = [&](std::string_view name, std::string_view bytes) {
    std::ofstream(folder / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  };
  std::filesystem::create_directories(folder);
  write("config.json", std::string_view(llama.at("config").as_string()));
  for (const auto& [name, content] : facts.at("files").at(llama.at("tokenizer").as_string()).as_object()) {
    const std::string_view text(content.at(1).as_string());
    write(name, content.at(0).as_string() == "base64" ? decoded_base64(text) : std::string(text));
  }
  json::object header;
  std::string weights;
  Random random(1);
  for (const json::value& tensor : llama.at("tensors").as_array()) {
    int64_t n = 1;
    for (const json::value& dim : tensor.at(2).as_array()) n *= dim.to_number<int64_t>();
    const size_t begin = weights.size();
    for (int64_t i = 0; i < n; ++i) {
      const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(random.uniform() / 4) >> 16);
      weights.append(reinterpret_cast<const char*>(&bits), sizeof bits);
    }
    header[tensor.at(0).as_string()] = {
        {"dtype", "BF16"}, {"shape", tensor.at(2)}, {"data_offsets", {begin, weights.size()}}};
  }
  const std::string head = json::serialize(header);
  const uint64_t n_head = head.size();
  write("model.safetensors", std::string(reinterpret_cast<const char*>(&n_head), sizeof n_head) + head + weights);
}

}  // namespace assay::test
