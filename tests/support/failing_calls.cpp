// The calls in place of the C library's.
#include "support/failing_calls.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace {

std::atomic<int> calls{0}, failing{-1}, failing_error{0};

bool fails() {
  if (calls++ != failing) return false;
  errno = failing_error;
  return true;
}

}  // namespace

namespace assay::test {

void fail_call(int i, int error) {
  calls = 0;
  failing = i;
  failing_error = error;
}

int n_calls() { return calls; }

}  // namespace assay::test

extern "C" {

ssize_t pwrite(int fd, const void* data, size_t n, off_t offset) { return fails() ? -1 : ::syscall(SYS_pwrite64, fd, data, n, offset); }
int fsync(int fd) { return fails() ? -1 : static_cast<int>(::syscall(SYS_fsync, fd)); }
int fallocate(int fd, int mode, off_t offset, off_t n) { return fails() ? -1 : static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, n)); }
int rename(const char* from, const char* to) noexcept {
  return fails() ? -1 : static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

}  // extern "C"
