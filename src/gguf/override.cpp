// See override.h.
#include "gguf/override.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

#include "assay/error.h"
#include "base/shown.h"

namespace assay::gguf {
namespace {

constexpr std::array<std::string_view, 4> kTypes = {"int", "float", "bool", "str"};

[[noreturn]] void refuse_override(std::string_view text, std::string_view need) {
  throw Error(Errc::bad_request, fmt::format("--override-kv {}: needs {}", base::shown(text), need));
}

template <class T>
std::optional<T> number_in(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Where a text that begins at `begin` has "=TYPE:" after its key; npos where it has not.
size_t equals_of(std::string_view text, size_t begin) {
  const size_t equals = text.find('=', begin);
  if (equals == std::string_view::npos || equals == begin) return std::string_view::npos;
  if (text.substr(begin, equals - begin).find(',') != std::string_view::npos) return std::string_view::npos;
  for (const std::string_view type : kTypes) {
    if (text.substr(equals + 1).starts_with(std::string(type) + ":")) return equals;
  }
  return std::string_view::npos;
}

Value value_of(std::string_view whole, std::string_view type, std::string_view text) {
  if (type == "int") {  // an unsigned number of 32 bits, as counts are everywhere in these files
    const auto number = number_in<uint32_t>(text);
    if (!number) refuse_override(whole, "a whole number from 0 to 4294967295 after int:");
    return Value::of(*number);
  }
  if (type == "float") {
    const auto number = number_in<float>(text);
    if (!number || !std::isfinite(*number)) refuse_override(whole, "a number after float:");
    return Value::of(*number);
  }
  if (type == "bool") {
    if (text != "true" && text != "false") refuse_override(whole, "true or false after bool:");
    return Value::of(text == "true");
  }
  if (text.size() > kStringBytesMax) refuse_override(whole, fmt::format("at most {} bytes", kStringBytesMax));
  return Value::of(text);
}

}  // namespace

std::vector<Override> parse_overrides(std::string_view text) {
  std::vector<Override> all;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t equals = equals_of(text, begin);
    if (equals == std::string_view::npos)
      refuse_override(text, "KEY=TYPE:VALUE, TYPE one of int, float, bool and str, e.g. llama.context_length=int:4096");
    const size_t colon = text.find(':', equals);
    size_t end = text.find(',', colon);
    while (end != std::string_view::npos && equals_of(text, end + 1) == std::string_view::npos)
      end = text.find(',', end + 1);  // a comma of the value
    if (end == std::string_view::npos) end = text.size();
    const std::string_view key = text.substr(begin, equals - begin);
    if (key.size() > kKeyBytesMax) refuse_override(text, fmt::format("a key of at most {} bytes", kKeyBytesMax));
    all.push_back({std::string(key), value_of(text, text.substr(equals + 1, colon - equals - 1),
                                              text.substr(colon + 1, end - colon - 1))});
    begin = end + 1;
  }
  return all;
}

const Entry* entry_of(const File& file, std::string_view key) {
  for (const Entry& entry : file.metadata().entries()) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

void put(File& file, const Override& one, OverrideStorage& storage) {
  const auto copied = [&](std::span<const std::byte> bytes) {
    return std::span<const std::byte>(storage.emplace_back(bytes.begin(), bytes.end()));
  };
  const auto value = copied(one.value.bytes);
  // A File shows its metadata to be read; who has the File itself may change them.
  if (auto* const entry = const_cast<Entry*>(entry_of(file, one.key))) {
    entry->type = one.value.type;
    entry->count = 0;
    entry->bytes = value;
    entry->read = false;
    return;
  }
  const auto key = copied(std::as_bytes(std::span(one.key)));
  const_cast<Metadata&>(file.metadata())
      .add({reinterpret_cast<const char*>(key.data()), key.size()}, one.value.type, ValueType::u8, 0, value);
}

}  // namespace assay::gguf
