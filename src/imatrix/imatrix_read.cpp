// The two forms of a file. Every count is held against the bytes that are left before anything is allocated for it.
#include "imatrix/imatrix_read.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "assay/error.h"
#include "base/shown.h"
#include "gguf/file.h"

namespace assay::imatrix {
namespace {

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";

[[noreturn]] void fail(const std::string& source, const std::string& problem) {
  throw Error(Errc::bad_file, fmt::format("{}: {}", source, problem));
}

void check(const std::string& source, const ImatrixEntry& entry) {
  const auto wrong = [](float x) { return !std::isfinite(x) || x < 0; };
  if (entry.name.empty()) fail(source, "an entry has no name");
  if (entry.sums.empty() || entry.counts.empty() || entry.sums.size() % entry.counts.size() != 0)
    fail(source,
         fmt::format("{} has {} sums for {} counts", base::shown(entry.name), entry.sums.size(), entry.counts.size()));
  const auto sum = std::ranges::find_if(entry.sums, wrong);
  if (sum != entry.sums.end())
    fail(source, fmt::format("{}: sum {} is {}; a number of at least 0 is needed", base::shown(entry.name),
                             sum - entry.sums.begin(), *sum));
  const auto count = std::ranges::find_if(entry.counts, wrong);
  if (count != entry.counts.end())
    fail(source, fmt::format("{}: count {} is {}; a number of at least 0 is needed", base::shown(entry.name),
                             count - entry.counts.begin(), *count));
}

std::vector<float> floats(const std::string& source, const gguf::Tensor& tensor) {
  if (tensor.view.dtype != tensor::DType::F32)
    fail(source, fmt::format("tensor {} is {}; F32 is needed", base::shown(tensor.name),
                             tensor::traits(tensor.view.dtype).name));
  std::vector<float> values(tensor.view.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.view.data.data(), tensor.view.data.size());
  return values;
}

Imatrix read_gguf(std::span<const std::byte> bytes, const std::string& source) {
  const gguf::File file = gguf::File::parse(bytes);
  const gguf::Metadata& metadata = file.metadata();
  const auto type = metadata.find_string("general.type");
  if (!type || *type != "imatrix")
    fail(source, fmt::format("is no importance matrix: general.type is {}", type ? base::shown(*type) : "not there"));
  Imatrix out;
  for (const std::string_view dataset :
       metadata.find_strings("imatrix.datasets").value_or(std::vector<std::string_view>{}))
    out.datasets.emplace_back(dataset);
  const auto number = [&](std::string_view key) {
    const uint64_t n = metadata.require_unsigned(key);
    if (n > UINT32_MAX) fail(source, fmt::format("metadata '{}' is {}; the limit is {}", key, n, UINT32_MAX));
    return static_cast<int64_t>(n);
  };
  out.n_chunks = number("imatrix.chunk_count");
  out.chunk_size = number("imatrix.chunk_size");
  if (out.chunk_size == 0) fail(source, "metadata 'imatrix.chunk_size' is 0; at least 1 is needed");
  for (const gguf::Tensor& tensor : file.tensors()) {
    if (tensor.name.ends_with(kSums)) {
      const std::string_view name = tensor.name.substr(0, tensor.name.size() - kSums.size());
      const gguf::Tensor* counts = file.find(std::string(name) + std::string(kCounts));
      if (!counts) fail(source, fmt::format("{} has no counts", base::shown(name)));
      ImatrixEntry& entry =
          out.entries.emplace_back(ImatrixEntry{std::string(name), floats(source, tensor), floats(source, *counts)});
      if (tensor.view.shape.rows() != counts->view.shape.elements())
        fail(source, fmt::format("{} has {} rows of sums and {} counts", base::shown(name), tensor.view.shape.rows(),
                                 counts->view.shape.elements()));
      check(source, entry);
    } else if (!tensor.name.ends_with(kCounts) ||
               !file.find(std::string(tensor.name.substr(0, tensor.name.size() - kCounts.size())) +
                          std::string(kSums))) {
      fail(source, fmt::format("tensor {} is no part of an importance matrix", base::shown(tensor.name)));
    }
  }
  return out;
}

class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& source) : bytes_(bytes), source_(source) {}
  bool at_end() const noexcept { return bytes_.empty(); }
  // A number that counts things of so many bytes each, which must be there.
  size_t count(const char* what, size_t bytes_each) {
    const int32_t n = number(what);
    if (n < 0 || static_cast<size_t>(n) > bytes_.size() / bytes_each)
      fail(source_, fmt::format("{} is {}; the file has {} bytes left", what, n, bytes_.size()));
    return static_cast<size_t>(n);
  }
  int32_t number(const char* what) {
    int32_t n = 0;
    std::memcpy(&n, take(sizeof n, what).data(), sizeof n);
    return n;
  }
  std::span<const std::byte> take(size_t n, const char* what) {
    if (n > bytes_.size()) fail(source_, fmt::format("ends within {}", what));
    const auto taken = bytes_.first(n);
    bytes_ = bytes_.subspan(n);
    return taken;
  }
  std::string text(const char* what) {
    const auto taken = take(count(what, 1), what);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& source_;
};

// int32 n; each: int32 length, name, int32 calls, int32 n values, floats (means times calls); then, where the file is
// not of the first kind, int32 chunks, int32 length, dataset.
Imatrix read_dat(std::span<const std::byte> bytes, const std::string& source) {
  constexpr size_t kEntryBytesMin = 4 + 1 + 4 + 4 + 4;
  Cursor in(bytes, source);
  Imatrix out;
  const size_t n = in.count("the number of entries", kEntryBytesMin);
  for (size_t i = 0; i < n; ++i) {
    ImatrixEntry entry;
    entry.name = in.text("a name's length");
    const int32_t calls = in.number("the number of calls");
    if (calls < 1) fail(source, fmt::format("{} has {} calls; at least 1 is needed", base::shown(entry.name), calls));
    entry.counts = {static_cast<float>(calls)};
    entry.sums.resize(in.count("the number of values", sizeof(float)));
    const auto values = in.take(entry.sums.size() * sizeof(float), "values");
    if (!values.empty()) std::memcpy(entry.sums.data(), values.data(), values.size());
    check(source, entry);
    out.entries.push_back(std::move(entry));
  }
  if (in.at_end()) return out;
  out.n_chunks = in.number("the number of chunks");
  if (out.n_chunks < 0) fail(source, fmt::format("the number of chunks is {}", out.n_chunks));
  out.datasets.push_back(in.text("a dataset's length"));
  if (!in.at_end()) fail(source, "has bytes after its end");
  return out;
}

}  // namespace

Imatrix read_bytes(std::span<const std::byte> bytes, const std::string& source) {
  const bool is_gguf = bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
  Imatrix out = is_gguf ? read_gguf(bytes, source) : read_dat(bytes, source);
  if (out.entries.empty()) fail(source, "has no entry");
  std::ranges::sort(out.entries, {}, &ImatrixEntry::name);
  const auto twice = std::ranges::adjacent_find(out.entries, {}, &ImatrixEntry::name);
  if (twice != out.entries.end()) fail(source, fmt::format("{} is there twice", base::shown(twice->name)));
  return out;
}

}  // namespace assay::imatrix
