// The writing side of dump.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "assay/error.h"
#include "trace/dump.h"
#include "trace/dump_header.h"
#include "trace/record_hash.h"

namespace assay::trace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

struct DumpWriter::State {
  explicit State(const std::string& file) : path(file) {
    errno = 0;
    out.open(path, std::ios::binary | std::ios::trunc);
    check("opened");
  }

  void check(const char* done) const {
    if (out) return;
    const std::string reason = errno != 0 ? ": " + std::generic_category().message(errno) : "";
    throw Error(Errc::io, fmt::format("{}: the dump cannot be {}{}", path, done, reason));
  }
  void raw(const void* data, size_t n) {
    errno = 0;
    out.write(static_cast<const char*>(data), static_cast<std::streamsize>(n));
    check("written");
  }
  void put(const void* data, size_t n) {
    hash.add(data, n);
    raw(data, n);
  }
  template <class T>
  void number(T value) {
    put(&value, sizeof value);
  }
  template <class T>
  void array(std::span<const T> values) {
    put(values.data(), values.size_bytes());
  }
  void begin_record(uint32_t kind, uint64_t length) {
    hash.begin_record();
    number(kind);
    number(length);
  }
  void end_record() {
    const uint64_t own = hash.of_record();
    hash.add_whole(&own, sizeof own);
    raw(&own, sizeof own);
    ++n_records;
  }
  void put_values(std::span<const double> values, bool as_f64) {
    if (as_f64) return array(values);
    std::array<float, 4096> narrow{};
    for (size_t at = 0; at < values.size(); at += narrow.size()) {
      const size_t n = std::min(narrow.size(), values.size() - at);
      for (size_t i = 0; i < n; ++i) narrow[i] = static_cast<float>(values[at + i]);
      put(narrow.data(), n * sizeof(float));
    }
  }

  std::string path;
  std::ofstream out;
  RecordHash hash;
  uint64_t n_records = 0;
  bool in_batch = false;
};

DumpWriter::DumpWriter(const std::string& path, const DumpHeader& header) : state_(std::make_unique<State>(path)) {
  const std::string text = header_to_json(header);
  if (text.size() > kDumpHeaderBytesMax) {
    throw Error(Errc::bad_request,
                fmt::format("the dump's header: needs at most {} bytes, found {}", kDumpHeaderBytesMax, text.size()));
  }
  state_->put("ASSAYDMP", 8);
  state_->number(kDumpVersion);
  state_->number(static_cast<uint32_t>(text.size()));
  state_->put(text.data(), text.size());
  state_->end_record();
  state_->n_records = 0;  // the header is none
}

DumpWriter::~DumpWriter() = default;

void DumpWriter::begin_batch(const ops::Batch& batch) {
  const size_t n = batch.tokens.size();
  if (n == 0 || n > kDumpTokensMax || batch.positions.size() != n || batch.outputs.size() != n ||
      (!batch.sequences.empty() && batch.sequences.size() != n)) {
    throw std::logic_error("DumpWriter: a batch of no tokens, too many, or of lists that differ in length");
  }
  const std::vector<int32_t> zeros(batch.sequences.empty() ? n : 0, 0);
  state_->begin_record(1, sizeof(uint32_t) + n * (3 * sizeof(int32_t) + 1));
  state_->number(static_cast<uint32_t>(n));
  state_->array(batch.tokens);
  state_->array(batch.positions);
  state_->array(batch.sequences.empty() ? std::span<const int32_t>(zeros) : batch.sequences);
  state_->array(batch.outputs);
  state_->end_record();
  state_->in_batch = true;
}

void DumpWriter::add(std::string_view op, int64_t n_rows, int64_t width, std::span<const double> values, bool as_f64) {
  if (!state_->in_batch) throw std::logic_error("DumpWriter: a tensor before the first batch");
  if (op.empty() || op.size() > kDumpNameBytesMax || n_rows < 0 || width <= 0 || values.size() > kDumpValuesMax ||
      static_cast<uint64_t>(n_rows) * static_cast<uint64_t>(width) != values.size()) {
    throw std::logic_error(fmt::format("DumpWriter: {} [{}, {}] with {} values", op, n_rows, width, values.size()));
  }
  state_->begin_record(2, 24 + op.size() + values.size() * (as_f64 ? sizeof(double) : sizeof(float)));
  state_->number(uint32_t{as_f64});
  state_->number(static_cast<uint32_t>(op.size()));
  state_->number(static_cast<uint64_t>(n_rows));
  state_->number(static_cast<uint64_t>(width));
  state_->put(op.data(), op.size());
  state_->put_values(values, as_f64);
  state_->end_record();
}

void DumpWriter::finish() {
  state_->number(uint32_t{0});
  state_->number(state_->n_records);
  const Hash128 whole = state_->hash.of_whole();
  state_->raw(&whole.low, sizeof whole.low);
  state_->raw(&whole.high, sizeof whole.high);
  errno = 0;
  state_->out.close();  // what is still buffered may not fit on the disk
  state_->check("written");
}

}  // namespace assay::trace
