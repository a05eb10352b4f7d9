#!/usr/bin/env bash
# Runs the given fuzz targets of fuzz/, or all, for SECONDS each (default 60; --short: 2). Exits with a
# nonzero status on any finding, which fuzz/artifacts keeps. Needs a nightly compiler and
# cargo-fuzz.
#
#   eval/fuzz.sh                    eval/fuzz.sh --short
#   eval/fuzz.sh 600 gordon_recover
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=60
case "${1:-}" in
--short) seconds=2; shift ;;
[0-9]*) seconds=$1; shift ;;
-*) echo "eval/fuzz.sh: unknown option '$1': see the head of the script" >&2; exit 2 ;;
esac
for need in "cargo fuzz --version" "cargo +nightly --version"; do
	$need >/dev/null 2>&1 || {
		echo "eval/fuzz.sh: '$need' does not work: rustup toolchain install nightly, cargo install cargo-fuzz --locked" >&2
		exit 2
	}
done
mapfile -t known < <(cargo +nightly fuzz list)
targets=("$@")
[ $# -gt 0 ] || targets=("${known[@]}")
for target in "${targets[@]}"; do
	printf '%s\n' "${known[@]}" | grep -qxF -- "$target" || {
		echo "eval/fuzz.sh: no target '$target': there are ${known[*]}" >&2
		exit 2
	}
done
for target in "${targets[@]}"; do
	printf '== %s, %s s\n' "$target" "$seconds"
	cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -print_final_stats=1 -verbosity=0
done
