#!/usr/bin/env bash
# Builds the command and the object that it preloads for aarch64, and runs what an emulator of the processor alone can run:
# the tests of the engine and of the allocator, a simulation, and the refusal of a kernel without userfaultfd.
#
# usage: eval/aarch64.sh [--short]        (needs rustup, gcc-aarch64-linux-gnu, libc6-dev-arm64-cross; else also qemu-user)
#
# --short: the compiler checks command and object for the target, and nothing is run. Exit code 77: something of these is
# missing.
set -euo pipefail
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
system=/usr/aarch64-linux-gnu
case ${1:-} in
--short) tools=(rustup aarch64-linux-gnu-gcc) ;;
"") tools=(rustup aarch64-linux-gnu-gcc qemu-aarch64) ;;
*) echo "aarch64.sh: $1: no such option: --short, or nothing" >&2; exit 2 ;;
esac
for tool in "${tools[@]}"; do
	command -v $tool >/dev/null || { echo "aarch64.sh: $tool is missing" >&2; exit 77; }
done
rustup target add $target || { echo "aarch64.sh: rustup has no standard library for $target" >&2; exit 77; }
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L $system"

if [ "${1:-}" = --short ]; then
	# The profile of the other steps: build scripts and macros are built already.
	exec cargo check --release --locked --target $target
fi
cargo build --locked --target $target
PROPTEST_CASES=${PROPTEST_CASES:-16} cargo test --locked --target $target -p flashvm-core -p flashvm-malloc --lib

command=${CARGO_TARGET_DIR:-target}/$target/debug/flashvm
flashvm() { qemu-aarch64 -L $system "$command" "$@"; }
flashvm sim --trace crates/flashvm-sim/tests/data/gcc.trace.gz --policy opt,clock --frames 10%

status=0
# The program must be one of this processor: the command itself.
line=$(flashvm run --ram 64M -- "$command" --version 2>&1) || status=$?
echo "$line"
case $status:$line in
"2:flashvm: aarch64 has no Syscall User Dispatch"*) ;;
*) echo "aarch64.sh: exit code $status instead of a refusal" >&2; exit 1 ;;
esac
