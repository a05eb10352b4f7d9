#!/usr/bin/env bash
# Builds a Debian package for the glibc of this machine. It has the preloaded object as a file of its own, where the
# distribution's tools find it: debuggers, checksums, the list of needed libraries.
#
# usage: contrib/packages/deb.sh FOLDER        (needs cargo-deb: `cargo install cargo-deb`)
set -euo pipefail
[ $# = 1 ] || { echo "usage: deb.sh FOLDER" >&2; exit 2; }
command -v cargo-deb >/dev/null || { echo "deb.sh: cargo-deb is missing: cargo install cargo-deb" >&2; exit 2; }
mkdir -p "$1"
folder=$(realpath "$1")
cd "$(dirname "$0")/../.."

# The workspace's default members are the command and the object.
cargo build --release --locked --features flashvm-cli/external-preload
release=${CARGO_TARGET_DIR:-target}/release
if objdump -T "$release/libflashvm_preload.so" | grep -q __stack_chk_fail; then
	echo "deb.sh: the object has stack protectors, which read memory that may be absent: unset CFLAGS" >&2
	exit 1
fi
rm -rf "$release/documents"
contrib/packages/documents.sh "$release/flashvm" "$release/documents"
gzip -9n "$release"/documents/man/*
cargo deb --package flashvm-cli --no-build --strip --locked --output "$folder"
