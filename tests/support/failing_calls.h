// For tests of what writes files: system calls that fail when they are told to. A program that links failing_calls.cpp
// has its own pwrite, fsync, rename fallocate and ioctl in place of the C library's, so that the code under test is
// what ships.
#pragma once

#include <cerrno>

namespace assay::test {

// The i-th call (from 0) of those above, counted from here, fails with this error; all others go through. Negative:
// none does.
void fail_call(int i, int error = ENOSPC);
int n_calls();  // since fail_call

// From now on ioctl(FICLONE) copies, as a file system does that can share blocks; else it is what the file system here
// has.
void set_clones(bool on);

}  // namespace assay::test
