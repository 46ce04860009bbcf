// The map behind mapped_file.h.
#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "assay/error.h"
#include "base/system_reason.h"

namespace assay::base {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  try {
    // Not blocking: opening a pipe without a writer would wait for ever.
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor_ < 0)
      throw Error(Errc::io, fmt::format("{}: cannot be opened: {}", path.string(), system_reason(errno)));
    struct stat info {};
    if (::fstat(descriptor_, &info) != 0) {
      throw Error(Errc::io, fmt::format("{}: cannot be examined: {}", path.string(), system_reason(errno)));
    }
    if (!S_ISREG(info.st_mode)) {
      throw Error(Errc::io, fmt::format("{}: is {}; a regular file is needed", path.string(), kind_of(info.st_mode)));
    }
    if (info.st_size == 0) throw Error(Errc::bad_file, fmt::format("{}: is empty", path.string()));
    const size_t size = static_cast<size_t>(info.st_size);
    void* map = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor_, 0);
    if (map == MAP_FAILED) {
      const Errc code = errno == ENOMEM ? Errc::out_of_memory : Errc::io;
      throw Error(code, fmt::format("{}: {} bytes cannot be mapped: {}", path.string(), size, system_reason(errno)));
    }
    bytes_ = {static_cast<const std::byte*>(map), size};
    // Advice, so its refusal is no failure. Weights are read end to end for every token; in pages of 4 KiB that waits
    // for address translation more than for memory (on a virtual machine 20 GB/s in place of 31). Holds for what is not
    // in the page cache yet.
    ::madvise(map, size, MADV_HUGEPAGE);
  } catch (...) {
    release();
    throw;
  }
}

MappedFile::~MappedFile() { release(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  release();
  path_ = std::move(other.path_);
  bytes_ = std::exchange(other.bytes_, {});
  descriptor_ = std::exchange(other.descriptor_, -1);
  return *this;
}

void MappedFile::check_size() const {
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) {
    throw Error(Errc::io, fmt::format("{}: cannot be examined: {}", path_.string(), system_reason(errno)));
  }
  if (static_cast<uint64_t>(info.st_size) < bytes_.size()) {
    throw Error(Errc::io, fmt::format("{}: was cut from {} to {} bytes while in use", path_.string(), bytes_.size(),
                                      info.st_size));
  }
}

void MappedFile::drop(std::span<const std::byte> part) const noexcept {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  // Who looks at the begin of a part may be given a whole large page, with the end of the part before, which was given
  // back already. So a part goes from the begin of that large page on: who reads on in parts leaves nothing between
  // them.
  constexpr uintptr_t kLargePage = 2 << 20;
  const auto first = reinterpret_cast<uintptr_t>(bytes_.data());
  const auto begin = std::max(first, reinterpret_cast<uintptr_t>(part.data()) / kLargePage * kLargePage);
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // NOLINT: an address
}

void MappedFile::release() noexcept {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  bytes_ = {};
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace assay::base
