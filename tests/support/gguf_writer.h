// Writes small GGUF files for tests, right ones and, through the raw_ and declared_ members, broken ones.
//   GgufWriter file;
//   file.set("general.architecture", "llama").set("llama.block_count", uint32_t{2}).set("xs", std::vector<float>{1,
//   2}); file.tensor("output_norm.weight", {4}, std::vector<float>{1, 2, 3, 4});   // row-major shape, last dimension
//   contiguous auto model = gguf::File::parse(bytes = file.bytes());                     // or file.write(path)
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor/dtype.h"

namespace assay::test {

using Bytes = std::vector<std::byte>;

inline void append(Bytes& out, const void* data, size_t n) {
  if (n == 0) return;
  const size_t at = out.size();
  out.resize(at + n);
  std::memcpy(out.data() + at, data, n);
}
template <class T>
requires std::is_arithmetic_v<T>
void append(Bytes& out, T number) { append(out, &number, sizeof number); }
inline void append(Bytes& out, std::string_view text) {  // as GGUF writes a string
  append(out, uint64_t{text.size()});
  append(out, text.data(), text.size());
}

template <class T>
constexpr uint32_t gguf_type() {
  if constexpr (std::is_same_v<T, bool>)
    return 7;
  else if constexpr (std::is_same_v<T, float>)
    return 6;
  else if constexpr (std::is_same_v<T, double>)
    return 12;
  else if constexpr (sizeof(T) == 8)
    return std::is_signed_v<T> ? 11 : 10;
  else
    return (sizeof(T) == 1 ? 0u : sizeof(T) == 2 ? 2u : 4u) + (std::is_signed_v<T> ? 1u : 0u);
}
inline constexpr uint32_t kGgufString = 8;
inline constexpr uint32_t kGgufArray = 9;

class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3, uint32_t alignment = 32) : version_(version), alignment_(alignment) {
    if (alignment != 32) set("general.alignment", alignment);
  }

  template <class T>
  requires std::is_arithmetic_v<T> GgufWriter& set(std::string_view key, T value) {
    Bytes payload;
    append(payload, value);
    return raw_entry(key, gguf_type<T>(), payload);
  }
  GgufWriter& set(std::string_view key, std::string_view value) {
    Bytes payload;
    append(payload, value);
    return raw_entry(key, kGgufString, payload);
  }
  GgufWriter& set(std::string_view key, const char* value) { return set(key, std::string_view(value)); }
  template <class T>
  GgufWriter& set(std::string_view key, const std::vector<T>& values) {  // numbers, bools or strings
    Bytes payload;
    if constexpr (std::is_arithmetic_v<T>) {
      append(payload, gguf_type<T>());
      append(payload, uint64_t{values.size()});
      for (T value : values) append(payload, value);
    } else {
      append(payload, kGgufString);
      append(payload, uint64_t{values.size()});
      for (const T& value : values) append(payload, std::string_view(value));
    }
    return raw_entry(key, kGgufArray, payload);
  }

  // shape is row-major; data holds the encoded rows.
  GgufWriter& tensor(std::string_view name, tensor::DType dtype, std::vector<int64_t> shape,
                     std::span<const std::byte> data) {
    const std::vector<uint64_t> dims(shape.rbegin(), shape.rend());
    raw_tensor(name, dims, static_cast<uint32_t>(dtype), data_.size());
    append(data_, data.data(), data.size());
    pad(data_);
    return *this;
  }
  GgufWriter& tensor(std::string_view name, std::vector<int64_t> shape, const std::vector<float>& values) {
    return tensor(name, tensor::DType::F32, std::move(shape), std::as_bytes(std::span(values)));
  }

  // An entry with any type number and any encoding.
  GgufWriter& raw_entry(std::string_view key, uint32_t type, std::span<const std::byte> payload) {
    append(entries_, key);
    append(entries_, type);
    append(entries_, payload.data(), payload.size());
    ++n_entries_;
    return *this;
  }
  // A directory line with any dimensions (as the file lists them: innermost first), type number and offset; no data.
  GgufWriter& raw_tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    append(directory_, name);
    append(directory_, static_cast<uint32_t>(dims.size()));
    for (uint64_t dim : dims) append(directory_, dim);
    append(directory_, type);
    append(directory_, offset);
    ++n_tensors_;
    return *this;
  }
  GgufWriter& raw_data(size_t n_bytes) {
    data_.resize(data_.size() + n_bytes);
    return *this;
  }
  // The header says these counts whatever there is.
  GgufWriter& declared_entries(uint64_t n) { return declared_entries_ = n, *this; }
  GgufWriter& declared_tensors(uint64_t n) { return declared_tensors_ = n, *this; }

  Bytes bytes() const {
    Bytes out;
    append(out, "GGUF", 4);
    append(out, version_);
    append(out, declared_tensors_.value_or(n_tensors_));
    append(out, declared_entries_.value_or(n_entries_));
    append(out, entries_.data(), entries_.size());
    append(out, directory_.data(), directory_.size());
    pad(out);
    append(out, data_.data(), data_.size());
    return out;
  }
  void write(const std::filesystem::path& path) const {
    const Bytes all = bytes();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(all.size()));
  }

 private:
  void pad(Bytes& out) const { out.resize((out.size() + alignment_ - 1) / alignment_ * alignment_); }

  uint32_t version_;
  uint32_t alignment_;
  Bytes entries_, directory_, data_;
  uint64_t n_entries_ = 0, n_tensors_ = 0;
  std::optional<uint64_t> declared_entries_, declared_tensors_;
};

}  // namespace assay::test
