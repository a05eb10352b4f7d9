#!/bin/sh
# Sorts in memory what does not fit into the budget: GNU sort with a buffer far above it.
#
#     flashvm run --ram 128M -- sh examples/sort.sh
#
# An argument sets the number of lines (default 6 million, about 280 MB). The input is numbered
# lines. They are sorted as text, where 10 precedes 2, and then by number, which must give the
# input, byte for byte.
set -eu
lines=${1:-6000000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LC_ALL=C

seq -f '%.0f bottles stood on the wall, and one fell' 1 "$lines" >"$folder/input"
echo "sorting $(wc -c <"$folder/input") bytes as text"
sort --buffer-size=2G --parallel=2 -o "$folder/sorted" "$folder/input"
sort --check "$folder/sorted"

echo "sorting them back by number"
found=$(sort --numeric-sort --buffer-size=2G --parallel=2 "$folder/sorted" | cksum)
expected=$(cksum <"$folder/input")
if [ "$expected" != "$found" ]; then
	echo "sort.sh: expected $expected; found $found" >&2
	exit 1
fi
echo "sorted and checked: $lines lines, $found"
