// What stands in a GGUF file before its tensors' data, to be written: metadata and the list of tensors, in order.
// Everything here is held to the reader's limits (file.h), so that what is written can be read.
//   Head head;
//   head.set("general.architecture", Value::of("llama")).set("llama.block_count", Value::of(uint32_t{2}));
//   head.declare("output_norm.weight", DType::F32, shape);
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gguf/file.h"

namespace assay::gguf {

template <class T>
concept Number = std::same_as<T, uint8_t> || std::same_as<T, int8_t> || std::same_as<T, uint16_t> ||
    std::same_as<T, int16_t> || std::same_as<T, uint32_t> || std::same_as<T, int32_t> || std::same_as<T, uint64_t> ||
    std::same_as<T, int64_t> || std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, bool>;

template <Number T>
constexpr ValueType value_type() noexcept {
  if constexpr (std::same_as<T, bool>) return ValueType::boolean;
  if constexpr (std::same_as<T, float>) return ValueType::f32;
  if constexpr (std::same_as<T, double>) return ValueType::f64;
  if constexpr (sizeof(T) == 1) return std::unsigned_integral<T> ? ValueType::u8 : ValueType::i8;
  if constexpr (sizeof(T) == 2) return std::unsigned_integral<T> ? ValueType::u16 : ValueType::i16;
  if constexpr (sizeof(T) == 4) return std::unsigned_integral<T> ? ValueType::u32 : ValueType::i32;
  return std::unsigned_integral<T> ? ValueType::u64 : ValueType::i64;
}

// A value of its own; bytes as in Entry (metadata.h).
struct Value {
  ValueType type = ValueType::u8;
  ValueType element_type = ValueType::u8;  // of an array
  uint64_t count = 0;                      // elements of an array
  std::vector<std::byte> bytes;

  static Value of(const Entry& entry);
  static Value of(std::string_view text);
  static Value of(const char* text) { return of(std::string_view(text)); }
  static Value of(std::span<const std::string> texts);       // an array
  static Value of(std::span<const std::string_view> texts);  // an array
  static Value of(const std::vector<bool>& bits);            // an array
  template <Number T>
  static Value of(T number) {
    Value value{value_type<T>(), ValueType::u8, 0, std::vector<std::byte>(sizeof number)};
    std::memcpy(value.bytes.data(), &number, sizeof number);
    return value;
  }
  template <Number T>
  static Value of(std::span<const T> numbers) {  // an array
    const auto bytes = std::as_bytes(numbers);
    return Value{ValueType::array, value_type<T>(), numbers.size(), {bytes.begin(), bytes.end()}};
  }
  template <Number T>
  static Value of(const std::vector<T>& numbers) requires(!std::same_as<T, bool>) {
    return of(std::span<const T>(numbers));
  }

  friend bool operator==(const Value&, const Value&) = default;
};

struct DeclaredTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::F32;
  tensor::Shape shape;
  uint64_t bytes = 0;  // of its data
};

class Head {
 public:
  Head() = default;
  // The file's metadata without what says that it is split, and its tensors.
  explicit Head(const File& file);

  // Puts the value in the place of the key's old one, else at the end.
  Head& set(std::string_view key, Value value);
  bool remove(std::string_view key);  // false: there is none
  const Value* find(std::string_view key) const;
  const std::vector<std::pair<std::string, Value>>& entries() const noexcept { return entries_; }

  // Error(bad_request) for rows that are no whole blocks, and what the reader would refuse.
  Head& declare(std::string_view name, tensor::DType dtype, const tensor::Shape& shape);
  void rename(std::string_view from,
              std::string_view to);  // Error(bad_request) where there is no such tensor, or `to` is taken
  const std::vector<DeclaredTensor>& tensors() const noexcept { return tensors_; }
  void clear_tensors();

  // general.alignment, 32 where there is none. Error(bad_request) for a value that the reader would refuse.
  uint64_t alignment() const;

 private:
  std::vector<std::pair<std::string, Value>> entries_;
  std::vector<DeclaredTensor> tensors_;
  std::unordered_map<std::string, size_t> tensor_by_name_;
};

// A file's bytes but for its tensors' data, and where those lie.
struct Layout {
  std::vector<std::byte> head;    // up to the first tensor's data, padded
  std::vector<uint64_t> offsets;  // of each tensor's data, from the start of the file
  uint64_t file_bytes = 0;        // each tensor's data is padded to the alignment

  uint64_t end(size_t tensor) const {
    return tensor + 1 < offsets.size() ? offsets[tensor + 1] : file_bytes;
  }  // of its data with the padding
};
Layout lay_out(const Head& head);  // version 3

// How a model is cut into files, as llama-gguf-split does it: a new file begins before a tensor with which the data,
// each tensor padded to 32 bytes, would pass bytes_max, or after every n_tensors_max. 0: no such limit.
struct SplitRule {
  uint64_t bytes_max = 0;
  uint64_t n_tensors_max = 0;
};

// One head a file. The first has all metadata, every one the three keys split.no, split.tensors.count and split.count.
// Error(bad_request) for more than kShardsMax files.
std::vector<Head> split(const Head& head, const SplitRule& rule);

}  // namespace assay::gguf
