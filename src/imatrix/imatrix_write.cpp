// Both forms, written.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "assay/error.h"
#include "assay/imatrix.h"
#include "base/output_file.h"
#include "base/shown.h"
#include "gguf/writer.h"

namespace assay {
namespace {

using gguf::Value;

void write_gguf(const Imatrix& imatrix, const std::string& path) {
  gguf::Head head;
  head.set("general.type", Value::of("imatrix"));
  head.set("imatrix.datasets", Value::of(std::span<const std::string>(imatrix.datasets)));
  head.set("imatrix.chunk_count", Value::of(static_cast<uint32_t>(imatrix.n_chunks)));
  head.set("imatrix.chunk_size", Value::of(static_cast<uint32_t>(imatrix.chunk_size)));
  for (const ImatrixEntry& entry : imatrix.entries) {
    const auto n_rows = static_cast<int64_t>(entry.counts.size());
    const int64_t n_columns = entry.n_columns();
    const bool is_one = n_rows == 1;  // then one dimension, as llama-imatrix has it
    head.declare(entry.name + ".in_sum2", tensor::DType::F32,
                 is_one ? tensor::Shape{{n_columns, 1, 1, 1}, 1} : tensor::Shape{{n_rows, n_columns, 1, 1}, 2});
    head.declare(entry.name + ".counts", tensor::DType::F32, {{n_rows, 1, 1, 1}, is_one ? 1 : 2});
  }
  gguf::Writer writer(path, std::move(head));
  for (const ImatrixEntry& entry : imatrix.entries) {
    writer.write(std::as_bytes(std::span(entry.sums)));
    writer.write(std::as_bytes(std::span(entry.counts)));
  }
  writer.finish();
}

// The number of calls: chunks, rounded up so that a little data is not lost.
int32_t calls_of(const Imatrix& imatrix, const ImatrixEntry& entry) {
  const float most = *std::ranges::max_element(entry.counts);
  const double calls =
      std::ceil(static_cast<double>(most) / static_cast<double>(std::max<int64_t>(imatrix.chunk_size, 1)));
  return static_cast<int32_t>(std::clamp(calls, 1.0, static_cast<double>(std::numeric_limits<int32_t>::max())));
}

void write_dat(const Imatrix& imatrix, const std::string& path) {
  uint64_t n_bytes = 4;
  const std::string dataset =
      imatrix.datasets.empty() ? std::string() : imatrix.datasets.back();  // the form has room for one
  for (const ImatrixEntry& entry : imatrix.entries) n_bytes += 4 + entry.name.size() + 4 + 4 + 4 * entry.sums.size();
  n_bytes += 4 + 4 + dataset.size();
  base::OutputFile out(path, n_bytes);
  const auto number = [&](int64_t n) {
    const auto small = static_cast<int32_t>(n);
    out.write(std::as_bytes(std::span(&small, 1)));
  };
  const auto text = [&](const std::string& t) {
    number(static_cast<int64_t>(t.size()));
    out.write(std::as_bytes(std::span(t)));
  };
  number(static_cast<int64_t>(imatrix.entries.size()));
  for (const ImatrixEntry& entry : imatrix.entries) {
    const int32_t calls = calls_of(imatrix, entry);
    text(entry.name);
    number(calls);
    number(static_cast<int64_t>(entry.sums.size()));
    std::vector<float> values = entry.importance();
    for (float& value : values) value *= static_cast<float>(calls);
    out.write(std::as_bytes(std::span(values)));
  }
  number(imatrix.n_chunks);
  text(dataset);
  out.close();
  out.commit();
}

}  // namespace

void write_imatrix(const Imatrix& imatrix, const std::string& path) {
  if (imatrix.entries.empty()) throw Error(Errc::bad_request, fmt::format("{}: there is no entry to write", path));
  if (path.ends_with(".dat")) {
    write_dat(imatrix, path);
    return;
  }
  if (imatrix.chunk_size < 1)
    throw Error(
        Errc::bad_request,
        fmt::format("{}: the GGUF form counts tokens, and the old form that was read does not tell them: name OUT.dat",
                    path));
  write_gguf(imatrix, path);
}

}  // namespace assay
