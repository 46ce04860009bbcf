#!/usr/bin/env bash
# Processors with and without the instructions of the NEON sets: each is given the sets that it can run, no other, and the kernels of the best one have
# the reference's bits there (an instruction too many would end the program).   usage: aarch64_processors.sh BACKEND_CPU_TESTS
set -euo pipefail
check() {  # processor, sets
  local output
  output=$(qemu-aarch64 -cpu "$1" "$program" --gtest_filter='KernelSets.*:*LinearKernels*/Q4_[01K]:Quantise.*:CpuExecutor.PoisonStaysVisible')
  grep -qxF "kernel sets: $2" <<<"$output" || { echo "$1 needs the kernel sets: $2; found:"; grep '^kernel sets' <<<"$output"; return 1; }
  echo "$1: $2"
}
program=$1
check cortex-a57 "reference"
check neoverse-n1 "reference neon"
check max "reference neon neon-i8mm"
