// The parser of reader.h. Rules: every count is compared with the bytes that are left before anything is allocated for
// it, sizes are multiplied with checks, nothing recurses on the input's depth.
#include "gguf/reader.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "assay/error.h"
#include "base/checked.h"
#include "base/round_up.h"
#include "base/shown.h"
#include "gguf/other_file.h"

namespace assay::gguf {
namespace {

constexpr uint64_t kEntryBytesMin = 8 + 1 + 4 + 1;       // key length, key, type, value
constexpr uint64_t kTensorBytesMin = 8 + 1 + 4 + 4 + 8;  // name length, name, rank, type, offset
constexpr size_t kAhead = 2048;                          // bytes
// Nobody knows how long it was.
constexpr std::string_view kMayBeCut = "; it may be cut: download it again (assay pull)";

// A position in the bytes, and what is being read there, for messages.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  void reading(std::string_view what, std::string_view thing = {}) noexcept {
    what_ = what;
    thing_ = thing;
  }
  uint64_t position() const noexcept { return position_; }
  std::span<const std::byte> all() const noexcept { return bytes_; }
  uint64_t left() const noexcept { return bytes_.size() - position_; }

  std::span<const std::byte> take(uint64_t n) {
    if (n > left())
      fail(fmt::format("needs {} bytes at offset {}, the file has {}{}", n, position_, left(), kMayBeCut));
    const auto taken = bytes_.subspan(position_, n);
    position_ += n;
    return taken;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view string(uint64_t bytes_max) {
    const auto length = number<uint64_t>();
    if (length > bytes_max) fail(fmt::format("has a length of {} bytes; the limit is {}", length, bytes_max));
    const auto taken = take(length);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

  // The same for many strings that nobody looks at yet: a vocabulary has a quarter of a million.
  void skip_strings(uint64_t n, uint64_t bytes_max) {
    const std::byte* at = bytes_.data() + position_;
    const std::byte* const end = bytes_.data() + bytes_.size();
    uint64_t length = 0;
    for (; n > 0 && static_cast<uint64_t>(end - at) >= sizeof length; --n) {
      std::memcpy(&length, at, sizeof length);
      __builtin_prefetch(at + kAhead);  // the processor itself stops at the end of a page
      if (length > bytes_max || length > static_cast<uint64_t>(end - at) - sizeof length) break;
      at += sizeof length + length;
    }
    position_ = static_cast<uint64_t>(at - bytes_.data());
    for (; n > 0; --n) string(bytes_max);  // says what is wrong with the one that stopped the walk
  }

  [[noreturn]] void fail(const std::string& problem, Errc code = Errc::bad_file) const {
    const std::string thing = thing_.empty() ? std::string() : base::shown(thing_);
    throw Error(code, fmt::format("{}: {}{}{} {}", source_, what_, thing.empty() ? "" : " ", thing, problem));
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
  const std::string& source_;
  std::string_view what_ = "the header";
  std::string_view thing_;
};

struct Header {
  uint32_t version = 0;
  uint64_t n_tensors = 0;
  uint64_t n_entries = 0;
};

Header read_header(Cursor& in) {
  in.reading("the magic");
  const auto magic = in.take(4);
  if (std::memcmp(magic.data(), "FUGG", 4) == 0)
    in.fail("is that of a big-endian file; only little-endian is served", Errc::unsupported);
  // What the file begins with instead is not told: the path may be that of a secret.
  if (std::memcmp(magic.data(), "GGUF", 4) != 0)
    in.fail(fmt::format("is not 'GGUF': this is no GGUF file{}", advice_for_other_file(in.all())));
  Header header;
  in.reading("the version");
  header.version = in.number<uint32_t>();
  if (header.version != 0 && (header.version & 0xffff) == 0) {
    in.fail(fmt::format("is {:#010x}, that of a big-endian file; only little-endian is served", header.version),
            Errc::unsupported);
  }
  if (header.version != 2 && header.version != 3) {
    in.fail(fmt::format("is {}; 2 and 3 are served", header.version),
            header.version == 0 ? Errc::bad_file : Errc::unsupported);
  }
  in.reading("the number of tensors");
  header.n_tensors = in.number<uint64_t>();
  if (header.n_tensors > kTensorsMax) in.fail(fmt::format("is {}; the limit is {}", header.n_tensors, kTensorsMax));
  in.reading("the number of metadata entries");
  header.n_entries = in.number<uint64_t>();
  if (header.n_entries > kEntriesMax) in.fail(fmt::format("is {}; the limit is {}", header.n_entries, kEntriesMax));
  const uint64_t least = header.n_entries * kEntryBytesMin + header.n_tensors * kTensorBytesMin;
  if (least > in.left()) {
    in.reading("the header");
    in.fail(fmt::format(
        "announces {} metadata entries and {} tensors, which need at least {} bytes; the file has {} left{}",
        header.n_entries, header.n_tensors, least, in.left(), kMayBeCut));
  }
  return header;
}

ValueType read_type(Cursor& in) {
  const auto number = in.number<uint32_t>();
  if (number > static_cast<uint32_t>(ValueType::f64))
    in.fail(fmt::format("has the type number {}; 0 to 12 exist", number));
  return static_cast<ValueType>(number);
}

void check_bools(const Cursor& in, std::span<const std::byte> values) {
  for (std::byte value : values) {
    if (value > std::byte{1}) in.fail(fmt::format("has a bool of {}; 0 or 1 is needed", std::to_integer<int>(value)));
  }
}

struct ArrayHead {
  ValueType element_type = ValueType::u8;
  uint64_t count = 0;
};

ArrayHead read_array_head(Cursor& in) {
  ArrayHead head;
  head.element_type = read_type(in);
  head.count = in.number<uint64_t>();
  const size_t fixed = scalar_bytes(head.element_type);
  const uint64_t least = fixed != 0 ? fixed : head.element_type == ValueType::string ? 8 : 12;
  if (head.count > in.left() / least) {
    in.fail(fmt::format("announces an array of {} {} of at least {} bytes each; the file has {} bytes left{}",
                        head.count, name(head.element_type), least, in.left(), kMayBeCut));
  }
  return head;
}

// Passes over the elements of an array whose elements are no arrays.
void skip_elements(Cursor& in, const ArrayHead& head) {
  if (head.element_type == ValueType::string) {
    in.skip_strings(head.count, kStringBytesMax);
    return;
  }
  const auto values =
      in.take(head.count * scalar_bytes(head.element_type));  // no overflow: count was compared with the bytes left
  if (head.element_type == ValueType::boolean) check_bools(in, values);
}

// Passes over an array's elements, going through arrays of arrays with a stack of how many are left on each level.
void skip_array(Cursor& in, const ArrayHead& outer) {
  std::array<uint64_t, kArrayDepthMax> left{};
  size_t depth = 0;
  ArrayHead head = outer;
  for (;;) {
    if (head.element_type == ValueType::array) {
      if (depth + 1 == left.size())
        in.fail(fmt::format("has arrays nested deeper than the limit of {}", kArrayDepthMax));
      left[depth++] = head.count;
    } else {
      skip_elements(in, head);
    }
    while (depth > 0 && left[depth - 1] == 0) --depth;
    if (depth == 0) return;
    --left[depth - 1];
    head = read_array_head(in);
  }
}

void read_entry(Cursor& in, Metadata& metadata) {
  in.reading("a metadata key");
  const std::string_view key = in.string(kKeyBytesMax);
  if (key.empty()) in.fail("is empty");
  in.reading("metadata", key);
  const ValueType type = read_type(in);
  ArrayHead head;
  std::span<const std::byte> bytes;
  if (type == ValueType::string) {
    const std::string_view text = in.string(kStringBytesMax);
    bytes = std::as_bytes(std::span(text.data(), text.size()));
  } else if (type == ValueType::array) {
    head = read_array_head(in);
    const Cursor begin = in;
    skip_array(in, head);
    Cursor again = begin;
    bytes = again.take(in.position() - begin.position());
  } else {
    bytes = in.take(scalar_bytes(type));
    if (type == ValueType::boolean) check_bools(in, bytes);
  }
  if (!metadata.add(key, type, head.element_type, head.count, bytes)) in.fail("appears twice");
}

uint64_t read_alignment(Cursor& in, const Metadata& metadata) {
  const Entry* entry = metadata.find(kAlignmentKey);
  if (!entry) return 32;
  in.reading("metadata", kAlignmentKey);
  if (entry->type != ValueType::u32) in.fail(fmt::format("is {}; u32 is needed", name(entry->type)));
  const uint64_t alignment = *metadata.find_unsigned(kAlignmentKey);
  if (!std::has_single_bit(alignment) || alignment < kAlignmentMin || alignment > kAlignmentMax) {
    in.fail(fmt::format("is {}; a power of two from {} to {} is needed", alignment, kAlignmentMin, kAlignmentMax));
  }
  return alignment;
}

// Dimensions, reversed into row-major order.
tensor::Shape read_shape(Cursor& in) {
  const auto rank = in.number<uint32_t>();
  if (rank > kRankMax) in.fail(fmt::format("has {} dimensions; the limit is {}", rank, kRankMax));
  tensor::Shape shape;
  shape.rank = rank == 0 ? 1 : static_cast<int>(rank);  // no dimension: one element
  for (uint32_t i = 0; i < rank; ++i) {
    const auto dim = in.number<uint64_t>();
    if (dim == 0 || dim > kDimensionMax) {
      in.fail(fmt::format("has {} as dimension {}; 1 to {} are possible", static_cast<int64_t>(dim), i, kDimensionMax));
    }
    shape.dims[rank - 1 - i] = static_cast<int64_t>(dim);
  }
  return shape;
}

std::string describe(const tensor::DTypeTraits& type, const tensor::Shape& shape) {
  std::string text(type.name);
  for (int i = 0; i < shape.rank; ++i)
    text += fmt::format("{}{}", i == 0 ? " " : " x ", shape.dims[static_cast<size_t>(i)]);
  return text;
}

uint64_t data_bytes(const Cursor& in, const tensor::DTypeTraits& type, const tensor::Shape& shape) {
  if (shape.cols() % type.block_elements != 0) {
    in.fail(fmt::format("is {}; rows must be a multiple of {} elements", describe(type, shape), type.block_elements));
  }
  std::optional<uint64_t> bytes =
      static_cast<uint64_t>(shape.cols() / type.block_elements * type.block_bytes);  // < 2^48
  for (int i = 0; i + 1 < shape.rank && bytes; ++i)
    bytes = base::checked_mul(*bytes, static_cast<uint64_t>(shape.dims[static_cast<size_t>(i)]));
  if (!bytes || *bytes > static_cast<uint64_t>(INT64_MAX))
    in.fail(fmt::format("is {}, which is beyond 2^63 bytes", describe(type, shape)));
  return *bytes;
}

// A directory line; its data's place is known only after the last line.
struct Line {
  Tensor tensor;
  const tensor::DTypeTraits* type = nullptr;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

Line read_line(Cursor& in) {
  Line line;
  in.reading("a tensor's name");
  line.tensor.name = in.string(kTensorNameBytesMax);
  if (line.tensor.name.empty()) in.fail("is empty");
  in.reading("tensor", line.tensor.name);
  line.tensor.view.shape = read_shape(in);
  const auto type = in.number<uint32_t>();
  line.type = tensor::find_traits(type);
  if (!line.type) in.fail(fmt::format("has the type number {}, which is not served", type), Errc::unsupported);
  line.tensor.view.dtype = line.type->dtype;
  line.offset = in.number<uint64_t>();
  line.bytes = data_bytes(in, *line.type, line.tensor.view.shape);
  return line;
}

// How long a file is whose data lies as its directory says; nothing where the directory contradicts itself.
std::optional<uint64_t> whole_bytes(std::span<const Line> lines, uint64_t data_begin, uint64_t alignment) {
  std::optional<uint64_t> end = 0;
  for (const Line& line : lines) {
    const auto begin = base::checked_round_up(*end, alignment);
    if (!begin || line.offset != *begin) return std::nullopt;
    end = base::checked_add(*begin, line.bytes);
    if (!end) return std::nullopt;
  }
  return base::checked_add(data_begin, *end);
}

[[noreturn]] void fail_cut(Cursor& in, const std::string& where, uint64_t file_bytes, uint64_t needed) {
  in.reading("the file");
  in.fail(
      fmt::format("is cut: {} of {} bytes are there; download it again (assay pull); {}", file_bytes, needed, where));
}

// The data of all tensors: one after the other in the order of the directory, each padded to the alignment.
std::vector<Tensor> place_data(Cursor& in, std::span<const std::byte> file, std::vector<Line> lines,
                               uint64_t alignment) {
  std::vector<Tensor> tensors;
  if (lines.empty()) return tensors;  // a vocabulary or an adapter's header: no data, whatever the padding
  const auto data_begin = base::checked_round_up(in.position(), alignment);
  const auto needed = data_begin ? whole_bytes(lines, *data_begin, alignment) : std::nullopt;
  if (!data_begin || *data_begin > file.size()) {
    if (needed)
      fail_cut(in, fmt::format("its tensors' data would begin at offset {}", *data_begin), file.size(), *needed);
    in.reading("the tensor data");
    in.fail(fmt::format("would begin at offset {}; the file has {} bytes", data_begin.value_or(0), file.size()));
  }
  const auto data = file.subspan(*data_begin);
  tensors.reserve(lines.size());
  uint64_t expected = 0;
  for (Line& line : lines) {
    in.reading("tensor", line.tensor.name);
    if (line.offset % alignment != 0)
      in.fail(fmt::format("has the offset {}, which is no multiple of the alignment {}", line.offset, alignment));
    if (line.offset != expected) {
      in.fail(fmt::format("has the offset {}, which {} the data before it; {} is needed", line.offset,
                          line.offset < expected ? "overlaps" : "leaves a gap after", expected));
    }
    if (line.offset > data.size() || line.bytes > data.size() - line.offset) {
      const std::string found =
          fmt::format("is {} and needs {} bytes at offset {} of the data, the data has {} bytes",
                      describe(*line.type, line.tensor.view.shape), line.bytes, line.offset, data.size());
      if (needed) fail_cut(in, fmt::format("tensor {} {}", base::shown(line.tensor.name), found), file.size(), *needed);
      in.fail(found);
    }
    line.tensor.view.data = data.subspan(line.offset, line.bytes);
    line.tensor.file_offset = *data_begin + line.offset;
    expected = *base::checked_round_up(line.offset + line.bytes, alignment);  // both are at most the file's size
    tensors.push_back(line.tensor);
  }
  if (data.size() > expected) {
    in.reading("the file");
    in.fail(fmt::format("has {} bytes after the data of its last tensor; none are allowed", data.size() - expected));
  }
  return tensors;
}

}  // namespace

namespace {

constexpr uint64_t kDataBytesMax = uint64_t{1} << 53;  // of a file that need not have them

// Everything before the tensors' data.
std::vector<Line> read_lines(Cursor& in, Contents& contents) {
  const Header header = read_header(in);
  contents.version = header.version;
  for (uint64_t i = 0; i < header.n_entries; ++i) read_entry(in, contents.metadata);
  contents.alignment = read_alignment(in, contents.metadata);

  std::vector<Line> lines;
  lines.reserve(header.n_tensors);
  std::unordered_set<std::string_view> names;
  names.reserve(header.n_tensors);
  for (uint64_t i = 0; i < header.n_tensors; ++i) {
    lines.push_back(read_line(in));
    if (!names.insert(lines.back().tensor.name).second) in.fail("appears twice");
  }
  if (lines.empty() && in.left() > kAlignmentMax) {
    in.reading("the file");
    in.fail(fmt::format("has no tensor and {} bytes after its metadata; none are allowed beyond padding", in.left()));
  }
  return lines;
}

}  // namespace

Contents read_contents(std::span<const std::byte> bytes, const std::string& source) {
  Cursor in(bytes, source);
  Contents contents;
  std::vector<Line> lines = read_lines(in, contents);
  contents.tensors = place_data(in, bytes, std::move(lines), contents.alignment);
  return contents;
}

Contents read_directory(std::span<const std::byte> bytes, const std::string& source) {
  Cursor in(bytes, source);
  Contents contents;
  const std::vector<Line> lines = read_lines(in, contents);
  const uint64_t data_begin = base::checked_round_up(in.position(), contents.alignment).value_or(0);
  uint64_t total = 0;
  for (const Line& line : lines) {
    in.reading("tensor", line.tensor.name);
    if (line.bytes > kDataBytesMax - total)
      in.fail(fmt::format("would make the data larger than {} bytes", kDataBytesMax));
    total += line.bytes;
    contents.tensors.push_back(line.tensor);
    contents.tensors.back().file_offset = base::checked_add(data_begin, line.offset).value_or(0);
  }
  return contents;
}

}  // namespace assay::gguf
