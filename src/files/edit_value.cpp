// Text to values and back.
#include "files/edit_value.h"

#include <fmt/format.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <charconv>
#include <cmath>
#include <system_error>
#include <vector>

#include "assay/error.h"
#include "base/ascii.h"
#include "base/shown.h"
#include "engine/metadata_json.h"
#include "files/printable.h"

namespace assay::files {
namespace {

using gguf::Value;
using gguf::ValueType;

constexpr ValueType kScalars[] = {ValueType::u8,  ValueType::i8,  ValueType::u16,     ValueType::i16,
                                  ValueType::u32, ValueType::i32, ValueType::u64,     ValueType::i64,
                                  ValueType::f32, ValueType::f64, ValueType::boolean, ValueType::string};

std::string_view typed_name(ValueType type) { return type == ValueType::string ? "str" : gguf::name(type); }

[[noreturn]] void refuse(std::string_view key, ValueType type, std::string_view text) {
  throw Error(Errc::bad_request, fmt::format("{}: {} is no {}", base::shown(key), base::shown(text), typed_name(type)));
}

template <class T>
Value number(std::string_view key, ValueType type, std::string_view text) {
  T parsed{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || end != text.data() + text.size()) refuse(key, type, text);
  return Value::of(parsed);
}

template <class T>
Value real(std::string_view key, ValueType type, std::string_view text) {
  Value value = number<T>(key, type, text);
  T parsed{};
  std::memcpy(&parsed, value.bytes.data(), sizeof parsed);
  if (!std::isfinite(parsed)) refuse(key, type, text);
  return value;
}

Value scalar(std::string_view key, ValueType type, std::string_view text) {
  switch (type) {
    case ValueType::u8: return number<uint8_t>(key, type, text);
    case ValueType::i8: return number<int8_t>(key, type, text);
    case ValueType::u16: return number<uint16_t>(key, type, text);
    case ValueType::i16: return number<int16_t>(key, type, text);
    case ValueType::u32: return number<uint32_t>(key, type, text);
    case ValueType::i32: return number<int32_t>(key, type, text);
    case ValueType::u64: return number<uint64_t>(key, type, text);
    case ValueType::i64: return number<int64_t>(key, type, text);
    case ValueType::f32: return real<float>(key, type, text);
    case ValueType::f64: return real<double>(key, type, text);
    case ValueType::boolean:
      if (text != "true" && text != "false") refuse(key, type, text);
      return Value::of(text == "true");
    case ValueType::string: return Value::of(text);
    case ValueType::array: break;
  }
  refuse(key, type, text);
}

Value strings(std::string_view key, std::string_view text) {
  boost::system::error_code error;
  const boost::json::value parsed = boost::json::parse({text.data(), text.size()}, error);
  std::vector<std::string> items;
  bool good = !error && parsed.is_array();
  for (size_t i = 0; good && i < parsed.as_array().size(); ++i) {
    const boost::json::value& item = parsed.as_array()[i];
    good = item.is_string();
    if (good) items.emplace_back(item.as_string());
  }
  if (!good)
    throw Error(Errc::bad_request, fmt::format("{}: {} is no array of strings; [\"a\", \"b\"] is one", base::shown(key),
                                               base::shown(text)));
  return Value::of(std::span<const std::string>(items));
}

Value array(std::string_view key, ValueType type, std::string_view text) {
  if (type == ValueType::string) return strings(key, text);
  text = base::trimmed(text);
  if (!text.starts_with('[') || !text.ends_with(']'))
    throw Error(Errc::bad_request,
                fmt::format("{}: {} is no array; [1, 2] is one", base::shown(key), base::shown(text)));
  text = base::trimmed(text.substr(1, text.size() - 2));
  Value value{ValueType::array, type, 0, {}};
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const Value item = scalar(key, type, base::trimmed(text.substr(0, comma)));
    value.bytes.insert(value.bytes.end(), item.bytes.begin(), item.bytes.end());
    ++value.count;
    if (comma == std::string_view::npos) break;
    text = text.substr(comma + 1);
    if (base::trimmed(text).empty()) refuse(key, type, "");
  }
  return value;
}

}  // namespace

std::optional<ValueType> parse_type(std::string_view text) {
  for (const ValueType type : kScalars) {
    if (text == typed_name(type)) return type;
  }
  return std::nullopt;
}

Value parse_value(std::string_view key, ValueType type, bool is_array, std::string_view text) {
  if (is_array || (type != ValueType::string && base::trimmed(text).starts_with('['))) return array(key, type, text);
  return scalar(key, type, text);
}

std::string shown_value(const Value& value) {
  constexpr int64_t kItemsMax = 4;
  constexpr size_t kCharactersMax = 160;
  gguf::Entry entry;
  entry.type = value.type;
  entry.element_type = value.element_type;
  entry.count = value.count;
  entry.bytes = value.bytes;
  const engine::JsonValue shown = engine::metadata_json(entry, kItemsMax);
  std::string json = printable(shown.text);
  if (shown.shortened && json.ends_with(']')) json.insert(json.size() - 1, ", ...");
  if (json.size() > kCharactersMax) {
    size_t end = kCharactersMax;
    while (end > 0 && (static_cast<unsigned char>(json[end]) & 0xc0) == 0x80) --end;  // not within a character
    json = json.substr(0, end) + "...";
  }
  if (value.type == ValueType::array)
    return fmt::format("array of {} {} {}", value.count, gguf::name(value.element_type), json);
  return fmt::format("{} {}", gguf::name(value.type), json);
}

}  // namespace assay::files
