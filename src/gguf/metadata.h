// The key-value part of a GGUF file, as views over the mapped bytes, with getters that state the type they want. Every
// successful or failed look-up of a key marks it as read, so that `inspect` can tell which keys nobody used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace assay::gguf {

enum class ValueType : uint32_t { u8 = 0, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
std::string_view name(ValueType type) noexcept;
size_t scalar_bytes(ValueType type) noexcept;  // 0 for strings and arrays

// One entry. bytes is the value's encoding in the file: a scalar's bytes, a string's characters, or an array's encoded
// elements (strings with their lengths, inner arrays with their type and count).
struct Entry {
  std::string_view key;
  ValueType type = ValueType::u8;
  ValueType element_type = ValueType::u8;  // of an array
  uint64_t count = 0;                      // elements of an array
  std::span<const std::byte> bytes;
  mutable std::atomic<bool> read{false};
};

// An array of strings as it lies in the file: each behind its length, 8 bytes. A view into the map.
struct StringArray {
  std::span<const std::byte> bytes;
  uint64_t count = 0;
};

// find_x: nullopt where the key is absent; Error(bad_file) naming key, wanted and found type where it has another type
// or range. require_x: Error(bad_file) naming the key where it is absent. "integer" accepts every integer type of the
// file whose value fits; float accepts f32 and f64; arrays likewise by element.
class Metadata {
 public:
  bool has(std::string_view key) const;  // does not mark it as read
  const Entry* find(std::string_view key) const;
  const std::deque<Entry>& entries() const noexcept { return entries_; }  // in file order

  std::optional<uint64_t> find_unsigned(std::string_view key) const;
  std::optional<int64_t> find_integer(std::string_view key) const;
  std::optional<double> find_float(std::string_view key) const;
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::string_view> find_string(std::string_view key) const;
  std::optional<std::vector<int64_t>> find_integers(std::string_view key) const;
  std::optional<std::vector<float>> find_floats(std::string_view key) const;
  std::optional<std::vector<bool>> find_bools(std::string_view key) const;
  std::optional<std::vector<std::string_view>> find_strings(std::string_view key) const;  // views into the map
  std::optional<StringArray> find_string_array(std::string_view key) const;

  uint64_t require_unsigned(std::string_view key) const;
  double require_float(std::string_view key) const;
  std::string_view require_string(std::string_view key) const;
  std::vector<std::string_view> require_strings(std::string_view key) const;
  StringArray require_string_array(std::string_view key) const;

  // For the reader of a file: appends an entry. False where the key exists already.
  bool add(std::string_view key, ValueType type, ValueType element_type, uint64_t count,
           std::span<const std::byte> bytes);

 private:
  const Entry* find_array(std::string_view key, std::string_view wanted, bool (*accepts)(ValueType)) const;

  std::deque<Entry> entries_;
  std::unordered_map<std::string_view, const Entry*> by_key_;
};

}  // namespace assay::gguf
