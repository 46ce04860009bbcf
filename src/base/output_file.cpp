// The writing behind output_file.h, by POSIX.
#include "base/output_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "assay/error.h"
#include "base/system_reason.h"

namespace assay::base {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& problem) {
  throw Error(Errc::io, fmt::format("{}: {}", path.string(), problem));
}

// Where a link leads, so that the rename replaces the file and not the link.
std::filesystem::path followed(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  if (error) fail(path, fmt::format("cannot be followed: {}", error.message()));
  return target;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

std::filesystem::path OutputFile::partial_of(const std::filesystem::path& path) {
  std::filesystem::path partial = followed(path);
  partial += ".partial";
  return partial;
}

OutputFile::OutputFile(const std::filesystem::path& path, uint64_t n_bytes, uint64_t keep)
    : path_(followed(path)), partial_(partial_of(path)), written_(keep) {
  struct stat old {};
  replaces_ = ::stat(path_.c_str(), &old) == 0;
  if (replaces_ && !S_ISREG(old.st_mode))
    throw Error(Errc::bad_request,
                fmt::format("{}: is no regular file; the file to write needs another name", path_.string()));
  if (keep == 0) {
    // What a killed process left is taken away, not cut: it might be another name of a file that is needed.
    const int left = ::open(partial_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    const bool busy = left >= 0 && ::flock(left, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (left >= 0) ::close(left);
    if (busy) fail(partial_, "another process is writing it");
    if (::unlink(partial_.c_str()) != 0 && errno != ENOENT)
      fail(partial_, fmt::format("cannot be replaced: {}", system_reason(errno)));
  }
  require_room(path_, n_bytes - keep);
  descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | (keep == 0 ? O_CREAT | O_EXCL : 0), 0666);
  if (descriptor_ < 0) fail(partial_, fmt::format("cannot be made: {}", system_reason(errno)));
  try {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      fail(partial_, "another process is writing it");
    exists_ = true;
    if (keep != 0 && ::ftruncate(descriptor_, static_cast<off_t>(keep)) != 0)
      fail(partial_, fmt::format("cannot be cut: {}", system_reason(errno)));
    if (replaces_ && ::fchmod(descriptor_, old.st_mode & 0777) != 0)
      fail(partial_, fmt::format("cannot be given its mode: {}", system_reason(errno)));
    // Beyond the end of the file, so that its size tells how far a killed process came. A file system that cannot has
    // told its room above.
    if (n_bytes != 0 && ::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(n_bytes)) != 0 &&
        errno != EOPNOTSUPP && errno != ENOSYS)
      fail(partial_, fmt::format("room for {} bytes cannot be had: {}", n_bytes, system_reason(errno)));
    buffer_.reserve(kBufferBytes);
  } catch (...) {
    discard();
    throw;
  }
}

OutputFile::~OutputFile() { discard(); }

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), partial_(std::move(other.partial_)),
      descriptor_(std::exchange(other.descriptor_, -1)), written_(other.written_),
      exists_(std::exchange(other.exists_, false)), replaces_(other.replaces_), buffer_(std::move(other.buffer_)) {}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    bytes = bytes.subspan(n);
    if (buffer_.size() == kBufferBytes) flush();
  }
}

void OutputFile::write_zeros(uint64_t n) {
  constexpr std::byte kZeros[4096]{};
  for (; n > 0; n -= std::min<uint64_t>(n, sizeof kZeros))
    write(std::span(kZeros, std::min<uint64_t>(n, sizeof kZeros)));
}

void OutputFile::flush() {
  std::span<const std::byte> left = buffer_;
  while (!left.empty()) {
    const ssize_t n = ::pwrite(descriptor_, left.data(), left.size(), static_cast<off_t>(written_));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      fail(partial_, fmt::format("{} bytes at offset {} cannot be written: {}", left.size(), written_,
                                 n < 0 ? system_reason(errno) : "nothing was taken"));
    written_ += static_cast<uint64_t>(n);
    left = left.subspan(static_cast<size_t>(n));
  }
  buffer_.clear();
}

bool OutputFile::clone(const std::filesystem::path& source) {
  const int from = ::open(source.c_str(), O_RDONLY | O_CLOEXEC);
  if (from < 0) return false;
  const bool done = ::ioctl(descriptor_, FICLONE, from) == 0;
  ::close(from);
  return done;
}

void OutputFile::overwrite(std::span<const std::byte> bytes, uint64_t offset) {
  const uint64_t end = std::exchange(written_, offset);
  for (size_t at = 0; at < bytes.size(); at += kBufferBytes) {
    const auto piece = bytes.subspan(at, std::min(kBufferBytes, bytes.size() - at));
    buffer_.assign(piece.begin(), piece.end());
    flush();
  }
  written_ = std::max(end, written_);
}

void OutputFile::close() {
  if (descriptor_ < 0) return;
  flush();
  if (::fsync(descriptor_) != 0) fail(partial_, fmt::format("cannot be brought to the disk: {}", system_reason(errno)));
  if (::close(std::exchange(descriptor_, -1)) != 0)
    fail(partial_, fmt::format("cannot be closed: {}", system_reason(errno)));
  std::vector<std::byte>().swap(buffer_);
}

void OutputFile::commit() {
  close();
  if (::rename(partial_.c_str(), path_.c_str()) != 0)
    fail(path_, fmt::format("cannot take its place: {}", system_reason(errno)));
  exists_ = false;
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0)
    return;  // a folder that may be written and not read: the rename is done, and is on the disk when the system wants
  const int status = ::fsync(folder);
  const int error = errno;
  ::close(folder);
  if (status != 0 && error != EINVAL)
    fail(path_, fmt::format("is written, but its folder cannot be brought to the disk: {}", system_reason(error)));
}

void OutputFile::revoke() noexcept {
  if (!replaces_) ::unlink(path_.c_str());
}

void OutputFile::discard() noexcept {
  if (exists_) ::unlink(partial_.c_str());
  exists_ = false;
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void require_room(const std::filesystem::path& path, uint64_t n_bytes) {
  struct statvfs info {};
  if (::statvfs(folder_of(path).c_str(), &info) != 0)
    fail(path, fmt::format("its folder cannot be examined: {}", system_reason(errno)));
  const uint64_t room = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  if (room < n_bytes) fail(path, fmt::format("needs {} bytes; the disk has room for {}", n_bytes, room));
}

void require_other_file(const std::filesystem::path& in, const std::filesystem::path& out) {
  std::error_code ignored;  // a path that is not there is no other name of anything
  for (const std::filesystem::path& other : {out, OutputFile::partial_of(out)}) {
    if (std::filesystem::equivalent(in, other, ignored))
      throw Error(Errc::bad_request,
                  fmt::format("{} is {} itself; another name is needed", other.string(), in.string()));
  }
}

}  // namespace assay::base
