// See safetensors.h.
#include "convert/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include "assay/error.h"
#include "base/shown.h"
#include "convert/json.h"

namespace assay::converting {
namespace {

using tensor::DType;

struct Type {
  std::string_view name;
  uint64_t bits;
  std::optional<DType> dtype = std::nullopt;
};
constexpr std::array kTypes = {Type{"F32", 32, DType::F32},
                               Type{"F16", 16, DType::F16},
                               Type{"BF16", 16, DType::BF16},
                               Type{"F64", 64},
                               Type{"F8_E4M3", 8},
                               Type{"F8_E5M2", 8},
                               Type{"F8_E8M0", 8},
                               Type{"F6_E2M3", 6},
                               Type{"F6_E3M2", 6},
                               Type{"F4", 4},
                               Type{"I64", 64},
                               Type{"I32", 32},
                               Type{"I16", 16},
                               Type{"I8", 8},
                               Type{"U64", 64},
                               Type{"U32", 32},
                               Type{"U16", 16},
                               Type{"U8", 8},
                               Type{"BOOL", 8},
                               Type{"C64", 64}};

struct Declared {
  StoredTensor tensor;
  uint64_t begin = 0, end = 0;
  bool has_type = false, has_shape = false, has_offsets = false;
  uint64_t bits = 0;  // of an element
};

uint64_t count_of(JsonCursor& in) {
  const JsonNumber n = in.number();
  if (!n.integer || *n.integer < 0) in.fail("needs a whole number of 0 or more");
  return static_cast<uint64_t>(*n.integer);
}

Declared read_entry(JsonCursor& in, const std::string& name) {
  Declared entry;
  entry.tensor.name = name;
  in.object([&](const std::string& key) {
    if (key == "dtype") {
      const std::string type = in.string();
      const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const Type& t) { return t.name == type; });
      if (found == kTypes.end())
        in.fail(fmt::format("{} has the type {}, which safetensors has not", base::shown(name), base::shown(type)));
      entry.tensor.type = found->name;
      entry.tensor.dtype = found->dtype;
      entry.bits = found->bits;
      entry.has_type = true;
    } else if (key == "shape") {
      in.array([&] {
        if (entry.tensor.shape.size() == 8) in.fail(fmt::format("{} has more than 8 dimensions", base::shown(name)));
        entry.tensor.shape.push_back(static_cast<int64_t>(count_of(in)));
      });
      entry.has_shape = true;
    } else if (key == "data_offsets") {
      int n = 0;
      in.array([&] {
        if (n == 2) in.fail(fmt::format("{} has more than two data_offsets", base::shown(name)));
        (n++ == 0 ? entry.begin : entry.end) = count_of(in);
      });
      entry.has_offsets = n == 2;
    } else {
      in.fail(fmt::format("{} has a member {}, which safetensors has not", base::shown(name), base::shown(key)));
    }
  });
  if (!entry.has_type || !entry.has_shape || !entry.has_offsets)
    in.fail(fmt::format("{} needs dtype, shape and two data_offsets", base::shown(name)));
  return entry;
}

// Bytes that the shape asks for; nothing where they pass 2^63.
std::optional<uint64_t> bytes_of(const Declared& entry) {
  uint64_t n = entry.bits;
  for (const int64_t dim : entry.tensor.shape) {
    if (dim == 0) return 0;
  }
  for (const int64_t dim : entry.tensor.shape) {
    if (__builtin_mul_overflow(n, static_cast<uint64_t>(dim), &n) || n > uint64_t{1} << 62) return std::nullopt;
  }
  return n % 8 == 0 ? std::optional(n / 8) : std::nullopt;
}

std::vector<Declared> read_header(std::string_view json, const std::string& what) {
  std::vector<Declared> entries;
  JsonCursor in(json, what);
  in.object([&](const std::string& name) {
    if (name == "__metadata__") {
      in.object([&](const std::string&) { in.string(); });
      return;
    }
    if (entries.size() == kFileTensorsMax) in.fail(fmt::format("more than {} tensors", kFileTensorsMax));
    if (name.empty() || name.size() > 512)
      in.fail(fmt::format("a tensor's name has {} bytes; needs 1 to 512", name.size()));
    entries.push_back(read_entry(in, name));
  });
  in.end();
  return entries;
}

bool is_pickle(std::span<const std::byte> bytes) noexcept {
  constexpr std::array<unsigned char, 4> kZip = {'P', 'K', 3, 4};
  if (bytes.size() >= 4 && std::memcmp(bytes.data(), kZip.data(), 4) == 0) return true;
  // Protocols 2 to 5 of a bare pickle. A safetensors file may begin with the same two bytes, of its header's length;
  // then that is within the limit, and the header begins with a brace.
  if (bytes.size() < 2 || bytes[0] != std::byte{0x80} || bytes[1] < std::byte{2} || bytes[1] > std::byte{5})
    return false;
  if (bytes.size() < 9) return true;
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  return header > kHeaderBytesMax || bytes[8] != std::byte{'{'};
}

}  // namespace

int64_t StoredTensor::rows() const noexcept {
  int64_t product = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) product *= shape[i];
  return product;
}

std::vector<StoredTensor> read_safetensors(std::span<const std::byte> bytes, const std::string& what) {
  if (bytes.size() < 8)
    throw Error(Errc::bad_file, fmt::format("{}: {} bytes are no safetensors file: it begins with 8 bytes of a length",
                                            what, bytes.size()));
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  if (header > kHeaderBytesMax)
    throw Error(Errc::bad_file,
                fmt::format("{}: a header of {} bytes; needs at most {}", what, header, kHeaderBytesMax));
  if (header > bytes.size() - 8) {
    throw Error(Errc::bad_file, fmt::format("{}: a header of {} bytes; the file has {} behind its first 8", what,
                                            header, bytes.size() - 8));
  }
  const std::span<const std::byte> data = bytes.subspan(8 + header);
  std::vector<Declared> entries =
      read_header({reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<size_t>(header)}, what);
  std::sort(entries.begin(), entries.end(), [](const Declared& a, const Declared& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t at = 0;
  std::vector<StoredTensor> tensors;
  tensors.reserve(entries.size());
  for (Declared& entry : entries) {
    const std::string name = base::shown(entry.tensor.name);
    if (entry.begin > entry.end || entry.end > data.size()) {
      throw Error(Errc::bad_file,
                  fmt::format("{}: {}: bytes {} to {} of {}", what, name, entry.begin, entry.end, data.size()));
    }
    if (entry.begin != at) {
      throw Error(
          Errc::bad_file,
          fmt::format(
              "{}: {} begins at byte {}, the tensor before it ends at {}: they may neither overlap nor leave a hole",
              what, name, entry.begin, at));
    }
    const std::optional<uint64_t> needed = bytes_of(entry);
    if (!needed || *needed != entry.end - entry.begin) {
      throw Error(Errc::bad_file,
                  fmt::format("{}: {}: its shape needs {} bytes of {}, it has {}", what, name,
                              needed ? fmt::format("{}", *needed) : std::string("no whole number of, or beyond 2^59,"),
                              entry.tensor.type, entry.end - entry.begin));
    }
    entry.tensor.data = data.subspan(entry.begin, entry.end - entry.begin);
    at = entry.end;
    tensors.push_back(std::move(entry.tensor));
  }
  if (at != data.size())
    throw Error(Errc::bad_file, fmt::format("{}: {} bytes of data, its tensors end at {}", what, data.size(), at));
  return tensors;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : map_(path) {
  const std::string what = path.filename().string();
  if (is_pickle(map_.bytes())) {
    throw Error(
        Errc::unsupported,
        fmt::format(
            "{} is a pickle under the name of a safetensors file; assay opens none, since reading one runs its code: "
            "save the model with save_pretrained(..., safe_serialization=True)",
            what));
  }
  tensors_ = read_safetensors(map_.bytes(), what);
}

}  // namespace assay::converting
