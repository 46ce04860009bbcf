#!/usr/bin/env bash
# Object files compiled for one instruction set must not define weak symbols (inline functions, templates): the linker keeps one copy of each
# for the whole program, and a copy with AVX-512 or SMMLA in it would crash a machine without.   usage: isa_symbols.sh OBJECT_FOLDER
set -euo pipefail
mapfile -t objects < <(find "$1" \( -name '*avx*.o' -o -name '*neon*.o' \) | sort)
((${#objects[@]})) || { echo "no object files of kernels below $1"; exit 1; }
bad=0
for object in "${objects[@]}"; do
  weak=$(nm -C --defined-only "$object" | awk '$2 ~ /^[WVu]$/' | grep -v ' DW.ref' || true)
  if [[ -n $weak ]]; then
    echo "$object defines:"
    echo "$weak"
    bad=1
  fi
done
echo "${#objects[@]} object files checked"
exit $bad
