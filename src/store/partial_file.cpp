// See partial_file.h. The lock is on the file itself; who gets it looks whether the file is still the one of that name,
// for a finished pull has renamed it meanwhile.
#include "store/partial_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <fstream>
#include <memory>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "assay/error.h"
#include "store/json_text.h"
#include "store/origin.h"

namespace assay::store {
namespace {

namespace json = boost::json;
constexpr size_t kNoteBytesMax = 64 << 10;
constexpr auto kLockWait = std::chrono::milliseconds(100);

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  throw Error(Errc::io, fmt::format("{}: {}: {}", path.string(), what, std::generic_category().message(errno)));
}

bool is_at(int descriptor, const std::filesystem::path& path) {
  struct stat own {
  }, named{};
  return ::fstat(descriptor, &own) == 0 && ::stat(path.c_str(), &named) == 0 && own.st_ino == named.st_ino &&
         own.st_dev == named.st_dev;
}

}  // namespace

PartialFile::PartialFile(std::filesystem::path target, const std::function<bool()>& on_wait)
    : target_(std::move(target)), path_(target_.string() + ".partial") {
  open(on_wait);
  if (is_ours()) read_back();
}

PartialFile::~PartialFile() {
  hash_.stop();
  if (descriptor_ >= 0) ::close(descriptor_);
}

void PartialFile::open(const std::function<bool()>& on_wait) {
  for (;;) {
    const int descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (descriptor < 0) fail(path_, "cannot be opened");
    struct stat info {};
    if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
      ::close(descriptor);
      throw Error(Errc::io, fmt::format("{}: is no regular file", path_.string()));
    }
    while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      const int problem = errno;
      if ((problem == EWOULDBLOCK || problem == EINTR) && on_wait()) {
        std::this_thread::sleep_for(kLockWait);
        continue;
      }
      ::close(descriptor);
      errno = problem;
      if (problem != EWOULDBLOCK && problem != EINTR) fail(path_, "cannot be locked");
      return;
    }
    if (is_at(descriptor, path_)) {
      descriptor_ = descriptor;
      return;
    }
    ::close(descriptor);
  }
}

std::filesystem::path PartialFile::note_path() const {
  return path_.parent_path() / fmt::format(".{}.note", path_.filename().string());
}

void PartialFile::read_back() {
  const auto text = read_small_file(note_path(), kNoteBytesMax);
  const auto value = text ? parse_json(*text) : std::nullopt;
  if (const json::object* object = value ? value->if_object() : nullptr) {
    source_ = {text_of(*object, "url"), text_of(*object, "version"), count_of(*object, "total_bytes"),
               text_of(*object, "sha256"), text_of(*object, "boot")};
  }
  if (source_.url.empty()) {
    restart();
    return;
  }
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) fail(path_, "cannot be examined");
  bytes_ = info.st_size;
  if (bytes_ > 0) hash_.grow(descriptor_, bytes_);
}

void PartialFile::note(const Source& source) {
  source_ = source;
  const json::object object = {{"url", source.url},
                               {"version", source.version},
                               {"total_bytes", source.total_bytes},
                               {"sha256", source.sha256},
                               {"boot", source.boot}};
  write_small_file(note_path(), json::serialize(object) + "\n");
}

void PartialFile::append(std::vector<std::byte>& bytes) {
  for (std::span<const std::byte> left = bytes; !left.empty();) {
    const ssize_t n = ::pwrite(descriptor_, left.data(), left.size(), bytes_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, "cannot be written");
    bytes_ += n;
    left = left.subspan(static_cast<size_t>(n));
  }
  hash_.grow(descriptor_, bytes_, bytes);
}

void PartialFile::restart() {
  hash_.restart();
  if (::ftruncate(descriptor_, 0) != 0) fail(path_, "cannot be cut");
  bytes_ = 0;
}

std::string PartialFile::digest() { return hash_.digest(); }

void PartialFile::sync() {
  if (::fsync(descriptor_) != 0) fail(path_, "cannot be synced");
}

void PartialFile::publish() {
  if (::rename(path_.c_str(), target_.c_str()) != 0) fail(target_, "cannot be given its name");
  const int folder = ::open(target_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) fail(target_.parent_path(), "cannot be opened");
  const int synced = ::fsync(folder);
  ::close(folder);
  if (synced != 0) fail(target_.parent_path(), "cannot be synced");
  ::unlink(note_path().c_str());  // a note without its file says nothing
}

void PartialFile::drop() noexcept {
  ::unlink(path_.c_str());
  ::unlink(note_path().c_str());
}

std::string boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

int64_t free_bytes(const std::filesystem::path& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) fail(folder, "cannot be examined");
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

}  // namespace assay::store
