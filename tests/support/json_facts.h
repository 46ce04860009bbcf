// Facts in tests/data that are JSON with bytes in hexadecimal.
#pragma once

#include <boost/json.hpp>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "quant/format.h"
#include "support/content.h"
#include "support/shared_data.h"

namespace assay::test {

inline std::vector<std::byte> from_hex(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

inline std::vector<float> floats_from_hex(std::string_view hex) {
  const std::vector<std::byte> bytes = from_hex(hex);
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

inline boost::json::value read_json(const std::string& name) { return boost::json::parse(content(data(name))); }

inline std::string_view text(const boost::json::value& value) {
  const boost::json::string& s = value.as_string();
  return {s.data(), s.size()};
}

inline const quant::Format* format_named(std::string_view name) {
  for (const quant::Format& format : quant::all_formats()) {
    if (tensor::traits(format.dtype).name == name) return &format;
  }
  return nullptr;
}

}  // namespace assay::test
