// See origin.h.
#include "store/origin.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <span>

#include "assay/error.h"
#include "base/descriptor.h"
#include "base/system_reason.h"
#include "store/json_text.h"
#include "store/names.h"

namespace assay::store {
namespace {

namespace json = boost::json;
constexpr size_t kOriginBytesMax = 64 << 10;

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw Error(Errc::io, fmt::format("{}: {}", path.string(), base::system_reason(errno)));
}

struct Stamp {
  int64_t bytes = 0, seconds = 0, nanoseconds = 0;
  bool operator==(const Stamp&) const = default;
};

std::optional<Stamp> stamp_of(const std::filesystem::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return std::nullopt;
  return Stamp{info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

}  // namespace

std::filesystem::path origin_path(const std::filesystem::path& file) {
  return file.parent_path() / fmt::format(".{}.origin", file.filename().string());
}

std::optional<std::string> read_small_file(const std::filesystem::path& path, size_t bytes_max) {
  const base::Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  struct stat info {};
  if (!file.is_open() || ::fstat(file.number(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  if (info.st_size > static_cast<int64_t>(bytes_max)) return std::nullopt;
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t n_read = 0;
  while (n_read < text.size()) {
    const ssize_t n = ::read(file.number(), text.data() + n_read, text.size() - n_read);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    n_read += static_cast<size_t>(n);
  }
  text.resize(n_read);
  return text;
}

void write_small_file(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path fresh = path.string() + ".new";
  const auto give_up = [&](const std::filesystem::path& of) {
    const int problem = errno;
    ::unlink(fresh.c_str());
    errno = problem;
    fail(of);
  };
  {
    const base::Descriptor file{::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
    if (!file.is_open()) fail(fresh);
    if (!base::write_whole(file, std::as_bytes(std::span(text)))) give_up(fresh);
    if (::fsync(file.number()) != 0) give_up(fresh);
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) give_up(path);
}

std::optional<OriginNote> read_origin(const std::filesystem::path& file) {
  const auto text = read_small_file(origin_path(file), kOriginBytesMax);
  if (!text) return std::nullopt;
  const std::optional<json::value> value = parse_json(*text);
  const json::object* object = value ? value->if_object() : nullptr;
  if (object == nullptr) return std::nullopt;
  const Stamp noted{count_of(*object, "bytes"), count_of(*object, "seconds"), count_of(*object, "nanoseconds")};
  if (stamp_of(file) != noted) return std::nullopt;
  OriginNote note;
  note.origin = {text_of(*object, "sha256"), text_of(*object, "url"),  text_of(*object, "repository"),
                 text_of(*object, "quant"),  text_of(*object, "time"), text_of(*object, "server_tag")};
  note.short_name = text_of(*object, "short_name");
  if (!is_sha256(note.origin.sha256)) note.origin.sha256.clear();
  return note;
}

void write_origin(const std::filesystem::path& file, const std::filesystem::path& named, const OriginNote& note) {
  const auto stamp = stamp_of(file);
  if (!stamp) fail(file);
  const ModelOrigin& o = note.origin;
  const json::object object = {{"sha256", o.sha256},
                               {"url", o.url},
                               {"repository", o.repository},
                               {"quant", o.quant},
                               {"time", o.time},
                               {"server_tag", o.server_tag},
                               {"short_name", note.short_name},
                               {"bytes", stamp->bytes},
                               {"seconds", stamp->seconds},
                               {"nanoseconds", stamp->nanoseconds}};
  write_small_file(origin_path(named), json::serialize(object) + "\n");
}

}  // namespace assay::store
