#!/usr/bin/env bash
# Runs the C test on a small model; its digests are those of the program.   usage: c_test.sh C_TEST EXAMPLE_MODEL MODEL ASSAY
set -euo pipefail
ids=1,259,260,100,101,102,200
"$2" "$3"
found=$("$1" "$3" "$ids")
said=$("$4" logits "$3" --ids "$ids" --json | sed -E 's/.*"logits_digest":"([0-9a-f]{32})","kv_digest":"([0-9a-f]{32})".*/\1 \2/')
[[ $found == "$said" ]] || { printf 'digests differ\n  C       %s\n  program %s\n' "$found" "$said"; exit 1; }
