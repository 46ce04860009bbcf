// The getters of metadata.h. The reader has checked every entry's extent, so decoding here cannot run out of bytes.
#include "gguf/metadata.h"

#include <fmt/core.h>

#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "assay/error.h"
#include "base/shown.h"

namespace assay::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read from the file as they lie");

template <class T>
T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::string type_of(const Entry& entry) {
  if (entry.type != ValueType::array) return std::string(name(entry.type));
  return fmt::format("array of {} {}", entry.count, name(entry.element_type));
}

[[noreturn]] void wrong_type(const Entry& entry, std::string_view wanted) {
  throw Error(Errc::bad_file,
              fmt::format("metadata {} is {}; {} is needed", base::shown(entry.key), type_of(entry), wanted));
}

bool is_integer(ValueType type) noexcept {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::u16:
    case ValueType::i16:
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::u64:
    case ValueType::i64: return true;
    default: return false;
  }
}

bool is_float(ValueType type) noexcept { return type == ValueType::f32 || type == ValueType::f64; }

// The value of an integer type; u64 goes to i64, with `beyond` set where it does not fit.
int64_t load_integer(ValueType type, const std::byte* at, bool& beyond) noexcept {
  switch (type) {
    case ValueType::u8: return load<uint8_t>(at);
    case ValueType::i8: return load<int8_t>(at);
    case ValueType::u16: return load<uint16_t>(at);
    case ValueType::i16: return load<int16_t>(at);
    case ValueType::u32: return load<uint32_t>(at);
    case ValueType::i32: return load<int32_t>(at);
    case ValueType::i64: return load<int64_t>(at);
    default: break;
  }
  const auto value = load<uint64_t>(at);
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) beyond = true;
  return static_cast<int64_t>(value);
}

double load_float(ValueType type, const std::byte* at) noexcept {
  return type == ValueType::f32 ? static_cast<double>(load<float>(at)) : load<double>(at);
}

[[noreturn]] void missing(std::string_view key) {
  throw Error(Errc::bad_file, fmt::format("metadata {} is needed and is not in the file", base::shown(key)));
}

}  // namespace

std::string_view name(ValueType type) noexcept {
  switch (type) {
    case ValueType::u8: return "u8";
    case ValueType::i8: return "i8";
    case ValueType::u16: return "u16";
    case ValueType::i16: return "i16";
    case ValueType::u32: return "u32";
    case ValueType::i32: return "i32";
    case ValueType::f32: return "f32";
    case ValueType::boolean: return "bool";
    case ValueType::string: return "string";
    case ValueType::array: return "array";
    case ValueType::u64: return "u64";
    case ValueType::i64: return "i64";
    case ValueType::f64: return "f64";
  }
  return "unknown";
}

size_t scalar_bytes(ValueType type) noexcept {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::boolean: return 1;
    case ValueType::u16:
    case ValueType::i16: return 2;
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::f32: return 4;
    case ValueType::u64:
    case ValueType::i64:
    case ValueType::f64: return 8;
    case ValueType::string:
    case ValueType::array: break;
  }
  return 0;
}

bool Metadata::has(std::string_view key) const { return by_key_.count(key) != 0; }

const Entry* Metadata::find(std::string_view key) const {
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return nullptr;
  it->second->read.store(true, std::memory_order_relaxed);
  return it->second;
}

const Entry* Metadata::find_array(std::string_view key, std::string_view wanted, bool (*accepts)(ValueType)) const {
  const Entry* entry = find(key);
  if (entry && (entry->type != ValueType::array || !accepts(entry->element_type))) wrong_type(*entry, wanted);
  return entry;
}

std::optional<uint64_t> Metadata::find_unsigned(std::string_view key) const {
  const Entry* entry = find(key);
  if (!entry) return std::nullopt;
  if (!is_integer(entry->type)) wrong_type(*entry, "an integer");
  if (entry->type == ValueType::u64) return load<uint64_t>(entry->bytes.data());
  bool beyond = false;
  const int64_t value = load_integer(entry->type, entry->bytes.data(), beyond);
  if (value < 0) {
    throw Error(Errc::bad_file,
                fmt::format("metadata {} is {}; a number of at least 0 is needed", base::shown(key), value));
  }
  return static_cast<uint64_t>(value);
}

std::optional<int64_t> Metadata::find_integer(std::string_view key) const {
  const Entry* entry = find(key);
  if (!entry) return std::nullopt;
  if (!is_integer(entry->type)) wrong_type(*entry, "an integer");
  bool beyond = false;
  const int64_t value = load_integer(entry->type, entry->bytes.data(), beyond);
  if (beyond) throw Error(Errc::bad_file, fmt::format("metadata {} is 2^63 or more; less is needed", base::shown(key)));
  return value;
}

std::optional<double> Metadata::find_float(std::string_view key) const {
  const Entry* entry = find(key);
  if (!entry) return std::nullopt;
  if (!is_float(entry->type)) wrong_type(*entry, "a float (f32 or f64)");
  return load_float(entry->type, entry->bytes.data());
}

std::optional<bool> Metadata::find_bool(std::string_view key) const {
  const Entry* entry = find(key);
  if (!entry) return std::nullopt;
  if (entry->type != ValueType::boolean) wrong_type(*entry, "a bool");
  return entry->bytes[0] != std::byte{0};
}

std::optional<std::string_view> Metadata::find_string(std::string_view key) const {
  const Entry* entry = find(key);
  if (!entry) return std::nullopt;
  if (entry->type != ValueType::string) wrong_type(*entry, "a string");
  return std::string_view(reinterpret_cast<const char*>(entry->bytes.data()), entry->bytes.size());
}

std::optional<std::vector<int64_t>> Metadata::find_integers(std::string_view key) const {
  const Entry* entry = find_array(key, "an array of integers", is_integer);
  if (!entry) return std::nullopt;
  std::vector<int64_t> values(entry->count);
  const size_t stride = scalar_bytes(entry->element_type);
  bool beyond = false;
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = load_integer(entry->element_type, entry->bytes.data() + i * stride, beyond);
  if (beyond)
    throw Error(Errc::bad_file,
                fmt::format("metadata {} has a number of 2^63 or more; less is needed", base::shown(key)));
  return values;
}

std::optional<std::vector<float>> Metadata::find_floats(std::string_view key) const {
  const Entry* entry = find_array(key, "an array of floats (f32 or f64)", is_float);
  if (!entry) return std::nullopt;
  std::vector<float> values(entry->count);
  const size_t stride = scalar_bytes(entry->element_type);
  if (entry->element_type == ValueType::f32) {
    if (!values.empty()) std::memcpy(values.data(), entry->bytes.data(), entry->bytes.size());
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(load_float(entry->element_type, entry->bytes.data() + i * stride));
  }
  return values;
}

std::optional<std::vector<bool>> Metadata::find_bools(std::string_view key) const {
  const Entry* entry = find_array(key, "an array of bools", [](ValueType type) { return type == ValueType::boolean; });
  if (!entry) return std::nullopt;
  std::vector<bool> values(entry->count);
  for (size_t i = 0; i < values.size(); ++i) values[i] = entry->bytes[i] != std::byte{0};
  return values;
}

std::optional<StringArray> Metadata::find_string_array(std::string_view key) const {
  const Entry* entry = find_array(key, "an array of strings", [](ValueType type) { return type == ValueType::string; });
  if (!entry) return std::nullopt;
  return StringArray{entry->bytes, entry->count};
}

std::optional<std::vector<std::string_view>> Metadata::find_strings(std::string_view key) const {
  const std::optional<StringArray> array = find_string_array(key);
  if (!array) return std::nullopt;
  std::vector<std::string_view> values;
  values.reserve(array->count);
  const std::byte* at = array->bytes.data();
  for (uint64_t i = 0; i < array->count; ++i) {
    const auto length = load<uint64_t>(at);
    values.emplace_back(reinterpret_cast<const char*>(at + 8), length);
    at += 8 + length;
  }
  return values;
}

uint64_t Metadata::require_unsigned(std::string_view key) const {
  const auto value = find_unsigned(key);
  if (!value) missing(key);
  return *value;
}

double Metadata::require_float(std::string_view key) const {
  const auto value = find_float(key);
  if (!value) missing(key);
  return *value;
}

std::string_view Metadata::require_string(std::string_view key) const {
  const auto value = find_string(key);
  if (!value) missing(key);
  return *value;
}

std::vector<std::string_view> Metadata::require_strings(std::string_view key) const {
  auto value = find_strings(key);
  if (!value) missing(key);
  return std::move(*value);
}

StringArray Metadata::require_string_array(std::string_view key) const {
  const auto value = find_string_array(key);
  if (!value) missing(key);
  return *value;
}

bool Metadata::add(std::string_view key, ValueType type, ValueType element_type, uint64_t count,
                   std::span<const std::byte> bytes) {
  const auto [it, is_new] = by_key_.try_emplace(key, nullptr);
  if (!is_new) return false;
  Entry& entry = entries_.emplace_back();
  entry.key = key;
  entry.type = type;
  entry.element_type = element_type;
  entry.count = count;
  entry.bytes = bytes;
  it->second = &entry;
  return true;
}

}  // namespace assay::gguf
