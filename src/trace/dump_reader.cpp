// The reading side of dump.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>
#include <sstream>
#include <system_error>

#include "assay/error.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "trace/dump.h"
#include "trace/dump_header.h"
#include "trace/record_hash.h"

namespace assay::trace {
namespace {

constexpr uint64_t kTensorFixedBytes = 24;  // of a tensor's payload, before its name
constexpr uint64_t kTokenBytes = 3 * sizeof(int32_t) + 1;

std::unique_ptr<std::istream> open_file(const std::string& path, uint64_t& size) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (error) throw Error(Errc::io, fmt::format("{}: cannot be opened: {}", path, error.message()));
  // Before it is opened: a pipe without a writer would wait for ever.
  if (!std::filesystem::is_regular_file(status))
    throw Error(Errc::io, fmt::format("{}: is no regular file, which a dump needs to be", path));
  size = std::filesystem::file_size(path, error);
  if (error) throw Error(Errc::io, fmt::format("{}: cannot be examined: {}", path, error.message()));
  errno = 0;
  auto file = std::make_unique<std::ifstream>(path, std::ios::binary);
  if (!*file)
    throw Error(Errc::io, fmt::format("{}: cannot be opened: {}", path, std::generic_category().message(errno)));
  return file;
}

}  // namespace

struct DumpReader::State {
  State(std::unique_ptr<std::istream> input, uint64_t size, std::string file)
      : in(std::move(input)), n_left(size), path(std::move(file)) {
    read_header();
  }

  [[noreturn]] void refuse(const std::string& message) const {
    throw Error(Errc::bad_file, fmt::format("{}: {}", path, message));
  }
  std::string record_name() const { return in_header ? "the header" : fmt::format("record {}", n_records); }
  void need(uint64_t n, const char* what) const {
    if (n > n_left)
      refuse(fmt::format("the dump is cut: {} needs {} bytes for {}, {} are left", record_name(), n, what, n_left));
  }

  // Bytes that no hash covers: the hashes themselves.
  void raw(void* data, size_t n) {
    errno = 0;
    in->read(static_cast<char*>(data), static_cast<std::streamsize>(n));
    if (static_cast<size_t>(in->gcount()) != n) {
      throw Error(Errc::io, fmt::format("{}: cannot be read{}", path,
                                        errno != 0 ? ": " + std::generic_category().message(errno)
                                                   : ": the file became shorter"));
    }
    n_left -= n;
  }
  void take(void* data, size_t n, const char* what) {
    need(n, what);
    raw(data, n);
    hash.add(data, n);
  }
  template <class T>
  T number(const char* what) {
    T value{};
    take(&value, sizeof value, what);
    return value;
  }
  template <class T>
  void array(std::vector<T>& into, uint64_t n, const char* what) {
    into.resize(n);
    take(into.data(), n * sizeof(T), what);
  }

  void check_record_hash() {
    const uint64_t computed = hash.of_record();
    need(sizeof computed, "its hash");
    uint64_t stored = 0;
    raw(&stored, sizeof stored);
    hash.add_whole(&stored, sizeof stored);
    if (stored != computed) {
      refuse(
          fmt::format("{} is damaged: its XXH3-64 is {:016x}, the file says {:016x}", record_name(), computed, stored));
    }
  }

  void read_header();
  Kind next();
  void read_batch(uint64_t length);
  void check_batch();
  void read_tensor(uint64_t length);
  void check_shape(uint64_t length, uint32_t element_type, uint32_t name_length, uint64_t n_rows, uint64_t width) const;
  void read_values(uint64_t n);
  void read_trailer();

  std::unique_ptr<std::istream> in;
  uint64_t n_left = 0;
  std::string path;
  RecordHash hash;
  DumpHeader header;
  DumpBatch batch;
  DumpTensor tensor;
  std::map<int32_t, int32_t> next_position;  // of each sequence
  uint64_t n_outputs = 0;
  uint64_t n_records = 0;
  bool in_header = true, at_end = false;
};

void DumpReader::State::read_header() {
  std::array<char, 8> magic{};
  if (n_left < magic.size()) refuse(fmt::format("is no dump: needs at least 16 bytes, found {}", n_left));
  take(magic.data(), magic.size(), "its magic");
  const std::string_view found(magic.data(), magic.size());
  if (found != "ASSAYDMP")
    refuse(fmt::format("is no dump: needs to begin with 'ASSAYDMP', found {}", base::shown(found)));
  const auto version = number<uint32_t>("its version");
  if (version != kDumpVersion) refuse(fmt::format("the dump's version: needs {}, found {}", kDumpVersion, version));
  const auto length = number<uint32_t>("its length");
  if (length > kDumpHeaderBytesMax)
    refuse(fmt::format("the header's length: needs at most {}, found {}", kDumpHeaderBytesMax, length));
  need(length, "its JSON");
  std::string text(length, '\0');
  take(text.data(), text.size(), "its JSON");
  check_record_hash();
  try {
    header = parse_header(text);
  } catch (const Error& e) {
    throw Error(e.code, fmt::format("{}: {}", path, e.what()));
  }
  in_header = false;
}

DumpReader::Kind DumpReader::State::next() {
  if (at_end) return Kind::end;
  if (n_left == 0) refuse(fmt::format("the dump is cut: after {} records its trailer is missing", n_records));
  hash.begin_record();
  const auto kind = number<uint32_t>("its kind");
  if (kind == 0) {
    read_trailer();
    return Kind::end;
  }
  if (kind > 2)
    refuse(fmt::format("{}: needs kind 1 (batch), 2 (tensor) or 0 (trailer), found {}", record_name(), kind));
  const auto length = number<uint64_t>("its length");
  need(length, kind == 1 ? "a batch" : "a tensor");
  kind == 1 ? read_batch(length) : read_tensor(length);
  check_record_hash();
  if (kind == 1) check_batch();
  ++n_records;
  return kind == 1 ? Kind::batch : Kind::tensor;
}

void DumpReader::State::read_batch(uint64_t length) {
  if (length < sizeof(uint32_t))
    refuse(fmt::format("{}: a batch needs 4 bytes at least, found {}", record_name(), length));
  const auto n = number<uint32_t>("its number of tokens");
  if (n == 0 || n > kDumpTokensMax)
    refuse(fmt::format("{}: a batch needs 1 to {} tokens, found {}", record_name(), kDumpTokensMax, n));
  if (length != sizeof n + n * kTokenBytes) {
    refuse(fmt::format("{}: a batch of {} tokens needs {} bytes, found {}", record_name(), n,
                       sizeof n + n * kTokenBytes, length));
  }
  array(batch.tokens, n, "its tokens");
  array(batch.positions, n, "its positions");
  array(batch.sequences, n, "its sequences");
  array(batch.outputs, n, "its outputs");
}

// After the hash: what the bytes are is then certain, and what they mean is the writer's affair.
void DumpReader::State::check_batch() {
  n_outputs = 0;
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    if (batch.tokens[i] < 0 || batch.tokens[i] >= header.vocab_size) {
      refuse(fmt::format("{}: token {}: needs an id from 0 to {}, found {}", record_name(), i, header.vocab_size - 1,
                         batch.tokens[i]));
    }
    if (batch.sequences[i] < 0 || batch.sequences[i] >= kDumpSequencesMax) {
      refuse(fmt::format("{}: token {}: needs a sequence from 0 to {}, found {}", record_name(), i,
                         kDumpSequencesMax - 1, batch.sequences[i]));
    }
    int32_t& expected = next_position[batch.sequences[i]];
    if (batch.positions[i] != expected || expected == INT32_MAX) {
      refuse(fmt::format("{}: token {}: needs position {} of sequence {}, found {}", record_name(), i, expected,
                         batch.sequences[i], batch.positions[i]));
    }
    ++expected;
    if (batch.outputs[i] > 1)
      refuse(fmt::format("{}: token {}: its output flag needs 0 or 1, found {}", record_name(), i, batch.outputs[i]));
    n_outputs += batch.outputs[i];
  }
}

void DumpReader::State::check_shape(uint64_t length, uint32_t element_type, uint32_t name_length, uint64_t n_rows,
                                    uint64_t width) const {
  if (batch.tokens.empty()) refuse(fmt::format("{}: a tensor before the first batch", record_name()));
  if (element_type > 1)
    refuse(fmt::format("{}: needs element type 0 (f32) or 1 (f64), found {}", record_name(), element_type));
  if (name_length == 0 || name_length > kDumpNameBytesMax) {
    refuse(fmt::format("{}: needs a name of 1 to {} bytes, found {}", record_name(), kDumpNameBytesMax, name_length));
  }
  if (n_rows != batch.tokens.size() && n_rows != n_outputs) {
    refuse(fmt::format("{}: needs {} rows (the batch's tokens) or {} (its outputs), found {}", record_name(),
                       batch.tokens.size(), n_outputs, n_rows));
  }
  if (width == 0 || width > kDumpValuesMax || n_rows * width > kDumpValuesMax) {  // rows are few: checked above
    refuse(fmt::format("{}: needs a width from 1 and {} values at most, found {} rows of {}", record_name(),
                       kDumpValuesMax, n_rows, width));
  }
  const uint64_t needed =
      kTensorFixedBytes + name_length + n_rows * width * (element_type == 1 ? sizeof(double) : sizeof(float));
  if (length != needed)
    refuse(fmt::format("{}: its name and {} x {} values need {} bytes, found {}", record_name(), n_rows, width, needed,
                       length));
}

void DumpReader::State::read_tensor(uint64_t length) {
  if (length < kTensorFixedBytes)
    refuse(fmt::format("{}: a tensor needs {} bytes at least, found {}", record_name(), kTensorFixedBytes, length));
  const auto element_type = number<uint32_t>("its element type");
  const auto name_length = number<uint32_t>("its name's length");
  const auto n_rows = number<uint64_t>("its rows");
  const auto width = number<uint64_t>("its width");
  check_shape(length, element_type, name_length, n_rows, width);
  tensor.op.resize(name_length);
  take(tensor.op.data(), name_length, "its name");
  if (!base::is_utf8(tensor.op))
    refuse(fmt::format("{}: its name {} is no UTF-8", record_name(), base::shown(tensor.op)));
  tensor.n_rows = static_cast<int64_t>(n_rows);
  tensor.width = static_cast<int64_t>(width);
  tensor.is_f64 = element_type == 1;
  read_values(n_rows * width);
}

void DumpReader::State::read_values(uint64_t n) {
  try {
    tensor.values.resize(n);
  } catch (const std::bad_alloc&) {
    throw Error(Errc::out_of_memory, fmt::format("{}: {} ({}) needs {} bytes of memory", path, record_name(),
                                                 base::shown(tensor.op), n * sizeof(double)));
  }
  if (tensor.is_f64) return take(tensor.values.data(), n * sizeof(double), "its values");
  std::array<float, 4096> narrow{};
  for (uint64_t at = 0; at < n; at += narrow.size()) {
    const uint64_t some = std::min<uint64_t>(narrow.size(), n - at);
    take(narrow.data(), some * sizeof(float), "its values");
    std::copy_n(narrow.begin(), some, tensor.values.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

void DumpReader::State::read_trailer() {
  const auto declared = number<uint64_t>("the trailer's count");
  const Hash128 computed = hash.of_whole();
  Hash128 stored;
  need(16, "the trailer's hash");
  raw(&stored.low, sizeof stored.low);
  raw(&stored.high, sizeof stored.high);
  if (stored != computed) {
    refuse(fmt::format("the dump is damaged: its XXH3-128 is {:016x}{:016x}, the trailer says {:016x}{:016x}",
                       computed.high, computed.low, stored.high, stored.low));
  }
  if (declared != n_records)
    refuse(fmt::format("the trailer: needs {} records, as were found, but says {}", n_records, declared));
  if (n_left != 0) refuse(fmt::format("the dump: needs to end after its trailer, found {} more bytes", n_left));
  at_end = true;
}

DumpReader::DumpReader(std::unique_ptr<State> state) : state_(std::move(state)) {}

DumpReader::DumpReader(const std::string& path) {
  uint64_t size = 0;
  std::unique_ptr<std::istream> file = open_file(path, size);
  state_ = std::make_unique<State>(std::move(file), size, path);
}

DumpReader DumpReader::from_bytes(std::string bytes) {
  const uint64_t size = bytes.size();
  return DumpReader(std::make_unique<State>(std::make_unique<std::istringstream>(std::move(bytes)), size, "the dump"));
}

DumpReader::~DumpReader() = default;
DumpReader::DumpReader(DumpReader&&) noexcept = default;
DumpReader& DumpReader::operator=(DumpReader&&) noexcept = default;

const DumpHeader& DumpReader::header() const noexcept { return state_->header; }
DumpReader::Kind DumpReader::next() { return state_->next(); }
const DumpBatch& DumpReader::batch() const noexcept { return state_->batch; }
DumpTensor& DumpReader::tensor() noexcept { return state_->tensor; }

}  // namespace assay::trace
