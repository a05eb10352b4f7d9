#!/usr/bin/env bash
# Does each function that ends by its frame pointer also begin by setting it? rustc 1.95 left that out of a function with an early
# return and an array on its stack that was aligned to 4096 bytes: it returned to an address that nobody had put there.
#
# usage: eval/frames.sh FILE...        (x86-64; needs objdump)
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: frames.sh FILE..." >&2; exit 2; }
for file in "$@"; do
	wrong=$(objdump -d --no-show-raw-insn "$file" | awk '
		function tell() { if (ends && !begins) print name }
		/^[0-9a-f]+ <.*>:$/ { tell(); name = $2; begins = ends = 0 }
		/push +%rbp/ { begins = 1 }
		/lea +-?0x[0-9a-f]+\(%rbp\),%rsp/ { ends = 1 }
		END { tell() }')
	[ -z "$wrong" ] || { echo "frames.sh: $file: no frame in $wrong" >&2; exit 1; }
	echo "$file: every function sets its frame"
done
