// The head of a file in memory, its bytes, and how it is cut into several.
#include "gguf/head.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "assay/error.h"
#include "base/checked.h"
#include "base/round_up.h"
#include "base/shown.h"

namespace assay::gguf {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint64_t kAlignmentDefault = 32;

[[noreturn]] void refuse(const std::string& problem) { throw Error(Errc::bad_request, problem); }

template <class T>
void append(std::vector<std::byte>& out, T number) {
  const auto bytes = std::as_bytes(std::span(&number, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void append_bytes(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void append_string(std::vector<std::byte>& out, std::string_view text) {
  append(out, uint64_t{text.size()});
  append_bytes(out, std::as_bytes(std::span(text)));
}

void append_value(std::vector<std::byte>& out, const Value& value) {
  append(out, static_cast<uint32_t>(value.type));
  if (value.type == ValueType::string) append(out, uint64_t{value.bytes.size()});
  if (value.type == ValueType::array) {
    append(out, static_cast<uint32_t>(value.element_type));
    append(out, value.count);
  }
  append_bytes(out, value.bytes);
}

template <class Text>
Value strings(std::span<const Text> texts) {
  Value value{ValueType::array, ValueType::string, texts.size(), {}};
  for (const Text& text : texts) {
    if (text.size() > kStringBytesMax)
      refuse(fmt::format("a string of {} bytes cannot be written; the limit is {}", text.size(), kStringBytesMax));
    append_string(value.bytes, text);
  }
  return value;
}

uint64_t data_bytes(std::string_view name, tensor::DType dtype, const tensor::Shape& shape) {
  const tensor::DTypeTraits& type = tensor::traits(dtype);
  if (shape.rank < 1 || shape.rank > static_cast<int>(kRankMax))
    refuse(fmt::format("tensor {} has {} dimensions; 1 to {} are possible", base::shown(name), shape.rank, kRankMax));
  std::optional<uint64_t> bytes = static_cast<uint64_t>(type.block_bytes);
  for (int i = 0; i < shape.rank; ++i) {
    const int64_t dim = shape.dims[static_cast<size_t>(i)];
    if (dim < 1 || static_cast<uint64_t>(dim) > kDimensionMax)
      refuse(
          fmt::format("tensor {} has a dimension of {}; 1 to {} are possible", base::shown(name), dim, kDimensionMax));
    const int64_t units = i + 1 == shape.rank ? dim / type.block_elements : dim;
    if (bytes) bytes = base::checked_mul(*bytes, static_cast<uint64_t>(units));
  }
  if (shape.cols() % type.block_elements != 0) {
    refuse(fmt::format("tensor {} has rows of {} elements; {} needs a multiple of {}", base::shown(name), shape.cols(),
                       type.name, type.block_elements));
  }
  if (!bytes || *bytes > static_cast<uint64_t>(INT64_MAX))
    refuse(fmt::format("tensor {} is beyond 2^63 bytes", base::shown(name)));
  return *bytes;
}

void check_name(std::string_view name) {
  if (name.empty() || name.size() > kTensorNameBytesMax)
    refuse(fmt::format("a tensor's name {} has {} bytes; 1 to {} are possible", base::shown(name), name.size(),
                       kTensorNameBytesMax));
}

uint64_t padded(uint64_t n, uint64_t alignment) {
  const auto up = base::checked_round_up(n, alignment);
  if (!up) refuse("the file would be beyond 2^64 bytes");
  return *up;
}

}  // namespace

Value Value::of(const Entry& entry) {
  return Value{entry.type, entry.element_type, entry.count, {entry.bytes.begin(), entry.bytes.end()}};
}

Value Value::of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return Value{ValueType::string, ValueType::u8, 0, {bytes.begin(), bytes.end()}};
}

Value Value::of(std::span<const std::string> texts) { return strings(texts); }
Value Value::of(std::span<const std::string_view> texts) { return strings(texts); }

Value Value::of(const std::vector<bool>& bits) {
  Value value{ValueType::array, ValueType::boolean, bits.size(), {}};
  for (const bool bit : bits) value.bytes.push_back(bit ? std::byte{1} : std::byte{0});
  return value;
}

Head::Head(const File& file) {
  for (const Entry& entry : file.metadata().entries()) {
    if (!entry.key.starts_with("split.")) entries_.emplace_back(std::string(entry.key), Value::of(entry));
  }
  for (const Tensor& tensor : file.tensors()) declare(tensor.name, tensor.view.dtype, tensor.view.shape);
}

Head& Head::set(std::string_view key, Value value) {
  if (key.empty() || key.size() > kKeyBytesMax)
    refuse(fmt::format("a metadata key {} has {} bytes; 1 to {} are possible", base::shown(key), key.size(),
                       kKeyBytesMax));
  if (value.type == ValueType::string && value.bytes.size() > kStringBytesMax)
    refuse(fmt::format("metadata {} has {} bytes; the limit of a string is {}", base::shown(key), value.bytes.size(),
                       kStringBytesMax));
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.first == key; });
  if (it != entries_.end()) {
    it->second = std::move(value);
    return *this;
  }
  if (entries_.size() == kEntriesMax)
    refuse(fmt::format("metadata {} would be more than {} entries, which is the limit", base::shown(key), kEntriesMax));
  entries_.emplace_back(std::string(key), std::move(value));
  return *this;
}

bool Head::remove(std::string_view key) {
  return std::erase_if(entries_, [&](const auto& entry) { return entry.first == key; }) != 0;
}

const Value* Head::find(std::string_view key) const {
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.first == key; });
  return it == entries_.end() ? nullptr : &it->second;
}

Head& Head::declare(std::string_view name, tensor::DType dtype, const tensor::Shape& shape) {
  check_name(name);
  if (tensors_.size() == kTensorsMax)
    refuse(fmt::format("tensor {} would be more than {} tensors, which is the limit", base::shown(name), kTensorsMax));
  const uint64_t bytes = data_bytes(name, dtype, shape);
  if (!tensor_by_name_.emplace(std::string(name), tensors_.size()).second)
    refuse(fmt::format("tensor {} is there twice", base::shown(name)));
  tensors_.push_back({std::string(name), dtype, shape, bytes});
  return *this;
}

void Head::rename(std::string_view from, std::string_view to) {
  check_name(to);
  const auto it = tensor_by_name_.find(std::string(from));
  if (it == tensor_by_name_.end()) refuse(fmt::format("there is no tensor {}", base::shown(from)));
  const size_t i = it->second;
  if (from != to && !tensor_by_name_.emplace(std::string(to), i).second)
    refuse(fmt::format("tensor {} cannot be called {}: there is one of that name", base::shown(from), base::shown(to)));
  if (from != to) tensor_by_name_.erase(std::string(from));
  tensors_[i].name = to;
}

void Head::clear_tensors() {
  tensors_.clear();
  tensor_by_name_.clear();
}

uint64_t Head::alignment() const {
  const Value* value = find(kAlignmentKey);
  if (!value) return kAlignmentDefault;
  if (value->type != ValueType::u32)
    refuse(fmt::format("metadata '{}' is {}; u32 is needed", kAlignmentKey, name(value->type)));
  uint32_t alignment = 0;
  std::memcpy(&alignment, value->bytes.data(), sizeof alignment);
  if (!std::has_single_bit(alignment) || alignment < kAlignmentMin || alignment > kAlignmentMax)
    refuse(fmt::format("metadata '{}' is {}; a power of two from {} to {} is needed", kAlignmentKey, alignment,
                       kAlignmentMin, kAlignmentMax));
  return alignment;
}

Layout lay_out(const Head& head) {
  const uint64_t alignment = head.alignment();
  Layout layout;
  std::vector<std::byte>& out = layout.head;
  append_bytes(out, std::as_bytes(std::span("GGUF", 4)));
  append(out, kVersion);
  append(out, uint64_t{head.tensors().size()});
  append(out, uint64_t{head.entries().size()});
  for (const auto& [key, value] : head.entries()) {
    append_string(out, key);
    append_value(out, value);
  }
  uint64_t end = 0;  // of the data so far
  for (const DeclaredTensor& tensor : head.tensors()) {
    append_string(out, tensor.name);
    append(out, static_cast<uint32_t>(tensor.shape.rank));
    for (int i = tensor.shape.rank; i-- > 0;)
      append(out, static_cast<uint64_t>(tensor.shape.dims[static_cast<size_t>(i)]));
    append(out, static_cast<uint32_t>(tensor.dtype));
    append(out, end);
    layout.offsets.push_back(end);
    const auto next = base::checked_add(end, tensor.bytes);
    if (!next) refuse("the file would be beyond 2^64 bytes");
    end = padded(*next, alignment);
  }
  out.resize(padded(out.size(), alignment));
  for (uint64_t& offset : layout.offsets) offset += out.size();
  const auto file_bytes = base::checked_add(out.size(), end);
  if (!file_bytes || *file_bytes > static_cast<uint64_t>(INT64_MAX)) refuse("the file would be beyond 2^63 bytes");
  layout.file_bytes = *file_bytes;
  return layout;
}

std::vector<Head> split(const Head& head, const SplitRule& rule) {
  std::vector<Head> heads(1, head);
  heads[0].clear_tensors();
  uint64_t bytes = 0;
  for (const DeclaredTensor& tensor : head.tensors()) {
    const uint64_t own = padded(tensor.bytes, kAlignmentDefault);
    const bool full = (rule.bytes_max != 0 && bytes + own > rule.bytes_max) ||
                      (rule.n_tensors_max != 0 && heads.back().tensors().size() == rule.n_tensors_max);
    if (full && !heads.back().tensors().empty()) {
      heads.emplace_back();
      bytes = 0;
    }
    bytes += own;
    heads.back().declare(tensor.name, tensor.dtype, tensor.shape);
  }
  if (heads.size() > kShardsMax)
    refuse(fmt::format("{} files would be written; the limit is {}", heads.size(), kShardsMax));
  for (size_t i = 0; i < heads.size(); ++i) {
    heads[i].set("split.no", Value::of(static_cast<uint16_t>(i)));
    heads[i].set("split.tensors.count", Value::of(static_cast<int32_t>(head.tensors().size())));
    heads[i].set("split.count", Value::of(static_cast<uint16_t>(heads.size())));
  }
  return heads;
}

}  // namespace assay::gguf
