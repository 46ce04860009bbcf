// See history_file.h. An entry is a line, with \n and \\ for line breaks and backslashes.
#include "io/history_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "assay/error.h"

namespace assay::cli {
namespace {

[[noreturn]] void fail(const std::string& path) {
  throw Error(Errc::io, fmt::format("{}: {}", path, std::strerror(errno)));
}

std::string escaped(std::string_view line) {
  std::string out;
  for (const char c : line) {
    if (c == '\\') out += '\\';
    out += c == '\n' ? '\\' : c;
    if (c == '\n') out += 'n';
  }
  return out;
}

std::string unescaped(std::string_view line) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool escape = line[i] == '\\' && i + 1 < line.size();
    if (escape) ++i;
    out += escape && line[i] == 'n' ? '\n' : line[i];
  }
  return out;
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags)
      : path_(path), fd_(::open(path.c_str(), flags | O_CREAT | O_CLOEXEC, 0600)) {
    if (fd_ < 0) fail(path);
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::write(fd_, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail(path_);
      text.remove_prefix(static_cast<size_t>(n));
    }
  }
  void keep_private() {
    struct stat facts {};
    if (::fstat(fd_, &facts) != 0) fail(path_);
    if ((facts.st_mode & 077) != 0 && ::fchmod(fd_, 0600) != 0) fail(path_);
  }

 private:
  const std::string& path_;
  int fd_;
};

}  // namespace

std::string default_history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return std::string(state) + "/assay/history";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.local/state/assay/history" : "";
}

HistoryFile::HistoryFile(std::string path) : path_(std::move(path)) {
  std::error_code failure;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), failure);
  if (failure) throw Error(Errc::io, fmt::format("{}: {}", path_, failure.message()));
  Descriptor(path_, O_WRONLY | O_APPEND).keep_private();
  const std::vector<std::string> all = lines();
  if (all.size() <= kLinesMax) return;
  const std::string shorter = fmt::format("{}.{}", path_, ::getpid());  // takes its place whole or not at all
  std::string text;
  for (size_t i = all.size() - kLinesMax; i < all.size(); ++i) text += escaped(all[i]) + "\n";
  Descriptor(shorter, O_WRONLY | O_TRUNC).write(text);
  if (::rename(shorter.c_str(), path_.c_str()) != 0) fail(path_);
}

std::vector<std::string> HistoryFile::lines() const {
  std::ifstream in(path_, std::ios::binary);
  if (!in) fail(path_);
  std::vector<std::string> all;
  for (std::string line; std::getline(in, line);) all.push_back(unescaped(line));
  return all;
}

void HistoryFile::add(std::string_view line) { Descriptor(path_, O_WRONLY | O_APPEND).write(escaped(line) + "\n"); }

}  // namespace assay::cli
