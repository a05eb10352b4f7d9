#!/usr/bin/env bash
# Builds an archive of one command for every distribution with glibc 2.28 or later. Zig links it against that version; all
# else is linked in. The archive unpacks into a prefix: bin, lib/flashvm (what `flashvm reproduce` runs), share.
#
# usage: contrib/packages/archive.sh FOLDER        (needs `pip install cargo-zigbuild ziglang`, binutils)
#
# GLIBC names another version.
set -euo pipefail
[ $# = 1 ] || { echo "usage: archive.sh FOLDER" >&2; exit 2; }
command -v cargo-zigbuild >/dev/null || {
	echo "archive.sh: cargo-zigbuild is missing: pip install cargo-zigbuild ziglang" >&2
	exit 2
}
mkdir -p "$1"
folder=$(realpath "$1")
cd "$(dirname "$0")/../.."
glibc=${GLIBC:-2.28}
target=x86_64-unknown-linux-gnu

cargo zigbuild --release --locked --package flashvm-cli --target "$target.$glibc"
release=${CARGO_TARGET_DIR:-target}/$target/release
object=$release/deps/libflashvm_preload.so

# A symbol without a version is one that this glibc lacks.
for file in "$release/flashvm" "$object"; do
	newest=$(objdump -T "$file" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -V | tail -1)
	unversioned=$(objdump -T "$file" | awk '$2 != "w" && /\*UND\*/ && !/GLIBC/ { print $NF }')
	if [ "$(printf '%s\n' "$newest" "$glibc" | sort -V | tail -1)" != "$glibc" ] || [ -n "$unversioned" ]; then
		echo "archive.sh: $file needs glibc $newest ${unversioned:+and $unversioned}" >&2
		exit 1
	fi
	echo "$file: glibc $newest"
done
if objdump -T "$object" | grep -q __stack_chk_fail; then
	echo "archive.sh: the object has stack protectors, which read memory that may be absent: unset CFLAGS" >&2
	exit 1
fi

version=$(cargo metadata --no-deps --format-version=1 | python3 -c 'import json, sys
print(next(p["version"] for p in json.load(sys.stdin)["packages"] if p["name"] == "flashvm-cli"))')
name=flashvm-$version-$target
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
contrib/packages/documents.sh "$release/flashvm" "$stage/documents"
documents=$stage/documents tree=$stage/$name
install -D -s "$release/flashvm" "$tree/bin/flashvm"
install -D -s "$release/flashvm-workload" "$tree/lib/flashvm/flashvm-workload"
install -D -m 644 -t "$tree/include" include/*
install -D -m 644 -t "$tree/share/man/man1" "$documents"/man/*
install -D -m 644 "$documents/flashvm.bash" "$tree/share/bash-completion/completions/flashvm"
install -D -m 644 "$documents/flashvm.zsh" "$tree/share/zsh/site-functions/_flashvm"
install -D -m 644 "$documents/flashvm.fish" "$tree/share/fish/vendor_completions.d/flashvm.fish"
install -D -m 644 -t "$tree/share/doc/flashvm" README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$documents/THIRD-PARTY.txt"

# The same commit gives the same archive.
tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" -c "$name" |
	gzip -9n >"$folder/$name.tar.gz"
echo "$folder/$name.tar.gz"
