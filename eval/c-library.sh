#!/usr/bin/env bash
# Installs the library in C of the crate flashvm into a folder of its own, builds examples/tree.c against it, shared and static, and runs both
# under the command beside the one of the headers alone. Ends with status 77 without cargo-c.
#
#   eval/c-library.sh [FLASHVM]
set -euo pipefail
cd "$(dirname "$0")/.."

flashvm=${1:-target/release/flashvm}
cargo cinstall --version >/dev/null 2>&1 || { echo "eval/c-library.sh: it needs cargo-c: cargo install cargo-c" >&2; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cargo cinstall --release --locked -p flashvm --prefix "$folder" --libdir "$folder/lib"
export PKG_CONFIG_PATH=$folder/lib/pkgconfig
# Beside the headers of `include` the example takes the library's.
mkdir "$folder/takes"
echo '#include <libflashvm.h>' >"$folder/takes/flashvm_arena.h"

compile() { cc -std=c99 -O2 -Wall -Wextra -pedantic -Werror "$@"; }
flags=(-I "$folder/takes" $(pkg-config --cflags flashvm) examples/tree.c)
compile -o "$folder/alone" -Iinclude examples/tree.c
compile -o "$folder/shared" "${flags[@]}" $(pkg-config --libs flashvm) -Wl,-rpath,"$folder/lib"
compile -o "$folder/static" "${flags[@]}" "$folder/lib/libflashvm.a" $(pkg-config --static --libs-only-l flashvm | sed 's/-lflashvm\b//')
ldd "$folder/shared" | grep -q "$folder/lib/libflashvm.so"
if ldd "$folder/static" | grep libflashvm; then
	echo "the static program takes the shared library" >&2
	exit 1
fi

# The functions of the header are the library's symbols, and no others.
exported=$(nm -D --defined-only "$folder/lib/libflashvm.so" | awk '{ print $3 }' | sort)
declared=$(grep -oE '\bflashvm_[a-z_]+\(' "$folder/include/libflashvm.h" | tr -d '(' | sort -u)
declared=$(comm -12 <(echo "$declared") <(grep -oE 'fn flashvm_[a-z_]+' crates/flashvm/src/capi.rs | cut -c4- | sort))
[ "$exported" = "$declared" ] || { echo "exported: $exported; declared: $declared" >&2; exit 1; }

for program in alone shared static; do
	"$flashvm" run --ram 8M --select api --quiet -- "$folder/$program" 260000 >"$folder/$program.out"
	cmp "$folder/alone.out" "$folder/$program.out"
	# Outside of a run it refuses, and names the command.
	if "$folder/$program" 10 2>"$folder/refusal"; then
		echo "$program: it ran without a pager" >&2
		exit 1
	fi
	grep -q 'start it with flashvm run --ram' "$folder/refusal"
done
echo "the library in C: the same tree, shared and static"
