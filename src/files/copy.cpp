// Copying in pieces.
#include "files/copy.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/error.h"
#include "base/mapped_file.h"
#include "base/shown.h"
#include "gguf/reader.h"

namespace assay::files {
namespace {

constexpr size_t kPieceBytes = 4 << 20;

bool is_cancelled(const FileProgress& watch) { return watch.cancelled && watch.cancelled(); }

void tell(const FileProgress& watch, int64_t done, int64_t total, std::string_view thing) {
  if (watch.progress) watch.progress(done, total, thing);
}

struct Cancelled {};  // leaves Writer::finish, which then leaves nothing behind

}  // namespace

bool compare_tensors(const gguf::File& source, const std::vector<std::filesystem::path>& written,
                     const FileProgress& watch, int64_t done, int64_t total) {
  size_t i = 0;
  for (const std::filesystem::path& path : written) {
    const base::MappedFile map(path);
    const gguf::Contents contents = gguf::read_contents(map.bytes(), path.string());
    for (const gguf::Tensor& copy : contents.tensors) {
      if (i == source.tensors().size())
        throw Error(Errc::io, fmt::format("{}: has more tensors than were written", path.string()));
      const gguf::Tensor& tensor = source.tensors()[i++];
      bool same = tensor.view.dtype == copy.view.dtype && tensor.view.shape == copy.view.shape;
      const auto from = tensor.view.data;
      for (size_t at = 0; same && at < from.size(); at += kPieceBytes) {
        if (is_cancelled(watch)) return false;
        const size_t n = std::min(kPieceBytes, from.size() - at);
        const auto a = from.subspan(at, n), b = copy.view.data.subspan(at, n);
        same = std::ranges::equal(a, b);
        source.drop(a);
        map.drop(b);
        done += static_cast<int64_t>(n);
        tell(watch, done, total, copy.name);
      }
      if (!same)
        throw Error(Errc::io,
                    fmt::format("{}: tensor {} is not what was written", path.string(), base::shown(copy.name)));
    }
  }
  if (i != source.tensors().size())
    throw Error(Errc::io, fmt::format("tensor {} was not written", base::shown(source.tensors()[i].name)));
  return true;
}

bool copy_tensors(const gguf::File& source, gguf::Writer& writer, const FileProgress& watch) {
  int64_t total = 0, done = 0;
  for (const gguf::Tensor& tensor : source.tensors())
    total += 2 * static_cast<int64_t>(tensor.view.data.size());  // written, then compared
  for (const gguf::Tensor& tensor : source.tensors()) {
    source.check_sizes();
    const auto data = tensor.view.data;
    for (size_t at = 0; at < data.size(); at += kPieceBytes) {
      if (is_cancelled(watch)) return false;
      const auto piece = data.subspan(at, std::min(kPieceBytes, data.size() - at));
      writer.write(piece);
      source.drop(piece);
      done += static_cast<int64_t>(piece.size());
      tell(watch, done, total, tensor.name);
    }
  }
  try {
    writer.finish([&](const std::vector<std::filesystem::path>& partials) {
      if (!compare_tensors(source, partials, watch, done, total)) throw Cancelled{};
    });
  } catch (const Cancelled&) {
    return false;
  }
  return true;
}

}  // namespace assay::files
