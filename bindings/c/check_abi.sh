#!/usr/bin/env bash
# Compares what the C library shows to programs that are built already with abi.txt: its soname, its symbols, the layout of its structs. What is
# listed there may only be added to; a line that changes or goes away needs another soname.   usage: check_abi.sh LIBRARY C_TEST
set -euo pipefail
listing=$(dirname "${BASH_SOURCE[0]}")/abi.txt
found() {
  readelf -d "$1" | sed -nE 's/.*\(SONAME\).*\[(.*)\]/soname \1/p'
  nm -D --defined-only --with-symbol-versions "$1" | awk '$2 != "A" {print "symbol", $3}' | LC_ALL=C sort
  "$2" --layout
}
diff -u --label abi.txt --label "found in $(basename "$1")" "$listing" <(found "$1" "$2")
