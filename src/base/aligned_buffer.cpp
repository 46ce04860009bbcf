// The memory behind aligned_buffer.h: private anonymous maps.
#include "base/aligned_buffer.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "assay/error.h"

namespace assay::base {
namespace {

constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

// A number in a file of the control group (v2: own folder first, then v1); kNone where there is none or it says "max".
uint64_t control_group_number(const char* v2, const char* v1) {
  for (const std::string& path : {std::string("/sys/fs/cgroup/") + v2, std::string("/sys/fs/cgroup/memory/") + v1}) {
    std::ifstream in(path);
    uint64_t number = 0;
    if (in >> number) return number;
  }
  return kNone;
}

uint64_t mem_available() {
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  for (uint64_t kib = 0; in >> key >> kib; std::getline(in, unit)) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return kNone;
}

// What may be in the way beside the machine: the process's own limit.
std::string own_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return fmt::format(", and this process may use {} (ulimit -v)", limit.rlim_cur);
}

}  // namespace

AlignedBuffer::AlignedBuffer(uint64_t bytes, std::string_view what) {
  if (bytes == 0) return;
  const uint64_t have = memory_total_bytes();
  void* map = MAP_FAILED;
  if (bytes <= have) {
    map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  if (map == MAP_FAILED) {
    throw Error(Errc::out_of_memory,
                fmt::format("{} needs {} bytes of memory; the machine has {}{}", what, bytes, have, own_limit()));
  }
  data_ = static_cast<std::byte*>(map);
  bytes_ = bytes;
}

void AlignedBuffer::advise_huge_pages() noexcept {
  if (data_) ::madvise(data_, bytes_, MADV_HUGEPAGE);  // advice: its refusal is no failure
}

void AlignedBuffer::release() noexcept {
  if (data_) ::munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

uint64_t memory_total_bytes() {
  struct sysinfo info {};
  uint64_t total = kNone;
  if (::sysinfo(&info) == 0) total = (static_cast<uint64_t>(info.totalram) + info.totalswap) * info.mem_unit;
  return std::min(total, control_group_number("memory.max", "memory.limit_in_bytes"));
}

uint64_t memory_available_bytes() {
  const uint64_t limit = control_group_number("memory.max", "memory.limit_in_bytes");
  const uint64_t used = control_group_number("memory.current", "memory.usage_in_bytes");
  const uint64_t left = limit == kNone || used == kNone ? kNone : limit - std::min(limit, used);
  return std::min(mem_available(), left);
}

}  // namespace assay::base
