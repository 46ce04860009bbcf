// The calls in place of the C library's. What they bring to the disk may be lost with the machine: no test waits for
// that.
#include "support/failing_calls.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <vector>

namespace {

std::atomic<int> calls{0}, failing{-1}, failing_error{0};

bool fails() {
  if (calls++ != failing) return false;
  errno = failing_error;
  return true;
}

std::atomic<bool> clones{false};

int cloned(int to, int from) {
  std::vector<char> bytes(1 << 16);
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(from, bytes.data(), bytes.size(), at);
    if (n <= 0) return static_cast<int>(n);
    if (::syscall(SYS_pwrite64, to, bytes.data(), static_cast<size_t>(n), at) != n) return -1;
    at += n;
  }
}

}  // namespace

namespace assay::test {

void fail_call(int i, int error) {
  calls = 0;
  failing = i;
  failing_error = error;
}

int n_calls() { return calls; }
void set_clones(bool on) { clones = on; }

}  // namespace assay::test

extern "C" {

ssize_t pwrite(int fd, const void* data, size_t n, off_t offset) {
  return fails() ? -1 : ::syscall(SYS_pwrite64, fd, data, n, offset);
}
int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void* const argument = va_arg(list, void*);
  va_end(list);
  if (request == FICLONE && clones)
    return fails() ? -1 : cloned(fd, static_cast<int>(reinterpret_cast<intptr_t>(argument)));
  return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
}
int fsync(int) { return fails() ? -1 : 0; }
int fallocate(int fd, int mode, off_t offset, off_t n) {
  return fails() ? -1 : static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, n));
}
int rename(const char* from, const char* to) noexcept {
  return fails() ? -1 : static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

}  // extern "C"
