#!/usr/bin/env bash
# A long torture campaign of the live pager: rounds with changing seeds, budgets, thread counts and
# modes, until the time is over. Each round prints the command that repeats it; the first failure
# ends the campaign with status 1.
#
# usage: eval/torture.sh [--as-nobody] [MINUTES]        (default 60)
#
# With --as-nobody (as root) everything runs as user and group 65534, in inline mode, which needs no
# privilege; parts are short, and budgets 8 to 15 MiB instead of up to 55. 0 minutes give one round.
# FLASHVM names the command (default target/release/flashvm), PART_SECONDS the time of a part
# (20, or 1 with --as-nobody).
set -euo pipefail
cd "$(dirname "$0")/.."
as=()
ram_span=48
times_span=6
if [ "${1:-}" = --as-nobody ]; then
	as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	PART_SECONDS=${PART_SECONDS:-1}
	ram_span=8
	times_span=3
	shift
fi
minutes=${1:-60}
flashvm=${FLASHVM:-target/release/flashvm}
part_seconds=${PART_SECONDS:-20}
[ -x "$flashvm" ] || { echo "torture.sh: $flashvm does not exist; run cargo build --release" >&2; exit 2; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tests/torture/build.sh "$folder"

if [ ${#as[@]} -gt 0 ]; then
	# A copy that user 65534 can reach.
	cp "$flashvm" "$folder"
	flashvm=$folder/flashvm
	chmod 755 "$folder" "$folder"/*
fi

modes=("" "--fault handler" "--fault protect" "--no-move" "--no-uring" "--preset flashvm" "--preset native" "--encrypt" "--inject write=2000"
	"--no-move --no-uring --inject write=5000")
end=$((SECONDS + minutes * 60))
round=0
while [ $round = 0 ] || [ $SECONDS -lt $end ]; do
	seed=$((RANDOM * 32768 + RANDOM))
	mode=${modes[$((round % ${#modes[@]}))]}
	mode=${mode/write=/seed=$seed,write=}
	[ ${#as[@]} = 0 ] || { mode=${mode/--fault handler/}; mode=${mode/--no-move/}; }
	ram=$((8 + RANDOM % ram_span))
	mib=$((ram * (2 + RANDOM % times_span)))
	threads=$((1 + RANDOM % 8))
	mkdir -m 1777 "$folder/store"
	# shellcheck disable=SC2206 # a mode is several words
	words=("${as[@]}" "$flashvm" run --ram "${ram}M" --flash "$folder/store" --flash-size 8G $mode -- "$folder/torture"
		--mib "$mib" --seconds "$part_seconds" --threads "$threads" --seed "$seed")
	echo "round $round: ${words[*]}"
	timeout --kill-after=10 $((part_seconds * 40 + 600)) "${words[@]}" || {
		echo "torture.sh: FAILED with status $? in round $round (124: it hung)" >&2
		exit 1
	}
	lost=0
	timeout 600 "${as[@]}" "$flashvm" run --ram "${ram}M" --flash "$folder/store" \
		--inject "read=400000,flip=400000,write=1000,seed=$seed" -- "$folder/sigbus" "$mib" 3 || lost=$?
	[ $lost = 0 ] || [ $lost = 3 ] || { echo "torture.sh: FAILED: sigbus ended with $lost" >&2; exit 1; }
	timeout 600 "${as[@]}" "$flashvm" run --ram "${ram}M" --flash "$folder/store" --flash-size 8G -- \
		"$folder/torture_cxx" "$((mib / 2))" "$seed"
	rmdir "$folder/store" # fails if something was left behind
	round=$((round + 1))
done
echo "torture.sh: $round rounds held"
