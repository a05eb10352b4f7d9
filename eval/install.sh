#!/usr/bin/env bash
# Does the command work as one file, wherever it lies? Copies it alone into a folder of its own, hides the folder where it
# was built, and pages a program on a root that cannot be written to, where /tmp forbids programs. Then it takes away,
# one by one, the ways in which programs get the preloaded object.
#
# usage: eval/install.sh [--build]        (Linux, as root; perl; strace for the cases of the cache folder)
#
# FLASHVM names the command (default target/release/flashvm); --build installs one with `cargo install` first.
set -euo pipefail
cd "$(dirname "$0")/.."

flashvm=${FLASHVM:-target/release/flashvm}
case ${1:-} in
--build) build=1 ;;
"") build= ;;
*)
	echo "install.sh: $1: no such option: --build, or nothing" >&2
	exit 2
	;;
esac
[ "$(id -u)" = 0 ] || { echo "install.sh: the cases need mounts of their own: run it as root" >&2; exit 2; }

work=$(mktemp -d -p /var/tmp)
trap 'rm -rf "$work"' EXIT
mkdir "$work"/{store,opt,noexec,cache}
chmod 755 "$work" "$work/opt"
chmod 1777 "$work/store"
if [ -n "$build" ]; then
	cargo install --quiet --locked --path crates/flashvm-cli --bin flashvm --root "$work/installed"
	flashvm=$work/installed/bin/flashvm
fi
[ -x "$flashvm" ] || { echo "install.sh: $flashvm does not exist; run cargo build --release" >&2; exit 2; }
built=$(dirname "$(realpath "$flashvm")")
alone=$work/opt/fv
cp "$flashvm" "$alone"

# Fills 48 MiB, three times the budget, and adds up a byte of each page.
fill='my $x = "x" x (48 << 20); my $s = 0; $s += ord substr $x, $_ << 12, 1 for 0 .. (48 << 8) - 1; print "$s\n";'
run=(run --ram 16M --flash "$work/store" --flash-size 128M --stats "$work/store/stats.json" -- perl -e "$fill")

# Runs a command where only the store's folder can be written to, and nothing in /tmp can be executed.
confined() {
	unshare --mount --propagation private sh -euc '
		work=$1 built=$2
		shift 2
		mount --bind "$work/store" "$work/store"
		mount -t tmpfs -o size=1M hidden "$built"
		mount -t tmpfs -o noexec,nosuid,nodev,size=16M tmp /tmp
		mount -t tmpfs -o noexec,nosuid,nodev,size=16M noexec "$work/noexec"
		mount -o remount,bind,ro /
		if touch "$work/opt/here" 2>/dev/null; then echo "install.sh: the root can be written to" >&2; exit 1; fi
		cp /bin/true /tmp/true
		if /tmp/true 2>/dev/null; then echo "install.sh: /tmp is not noexec" >&2; exit 1; fi
		exec "$@"' sh "$work" "$built" "$@"
}

# paged NAME COMMAND...: the program is right, and was paged.
paged() {
	local name=$1 printed faults
	shift
	rm -f "$work/store/stats.json"
	printed=$("$@" 2>"$work/errors") || { echo "FAILED: $name: status $?"; cat "$work/errors"; exit 1; } >&2
	faults=$(sed -n 's/^  faults *\([0-9,]*\):.*/\1/p' "$work/errors" | tr -d ,)
	if [ "$printed" != $((120 * (48 << 8))) ] || [ "${faults:-0}" -lt 1000 ]; then
		{ echo "FAILED: $name: printed $printed, ${faults:-no} faults"; cat "$work/errors"; } >&2
		exit 1
	fi
	echo "ok: $name"
}

# refused NAME TEXT COMMAND...: exit code 2, and one line with TEXT.
refused() {
	local name=$1 text=$2 status=0
	shift 2
	"$@" >/dev/null 2>"$work/errors" || status=$?
	if [ $status != 2 ] || ! grep -qF -- "$text" "$work/errors" || [ "$(wc -l <"$work/errors")" != 1 ]; then
		{ echo "FAILED: $name: status $status"; cat "$work/errors"; } >&2
		exit 1
	fi
	echo "ok: $name: refused"
}

paged "one file, a read-only root, /tmp with noexec" confined env -u HOME "$alone" "${run[@]}"
paged "the same as an ordinary user" \
	confined setpriv --reuid=65534 --regid=65534 --clear-groups "$alone" "${run[@]}"
no_programs_in_memory='echo 2 >/proc/sys/vm/memfd_noexec && exec "$@"'
if [ -e /proc/sys/vm/memfd_noexec ]; then
	paged "vm.memfd_noexec=2" unshare --pid --fork --mount-proc sh -c "$no_programs_in_memory" sh "$alone" "${run[@]}"
else
	echo "SKIPPED: vm.memfd_noexec=2: Linux 6.3"
fi

# The command asks for the object's memfd with the flag NOEXEC_SEAL, then without.
no_memfd=(strace -qq -o /dev/null -e trace=memfd_create -e inject=memfd_create:error=EACCES:when=1..2 "$alone" "${run[@]}")
if command -v strace >/dev/null; then
	paged "no code in a memfd: a private file" env XDG_CACHE_HOME="$work/cache" "${no_memfd[@]}"
	mode=$(stat -c %a "$work/cache/flashvm")
	[ "$mode" = 700 ] || { echo "FAILED: the cache folder has mode $mode" >&2; exit 1; }
	paged "the same file again" env XDG_CACHE_HOME="$work/cache" "${no_memfd[@]}"
	count=$(find "$work/cache" -type f | wc -l)
	[ "$count" = 1 ] || { echo "FAILED: $count files in the cache folder" >&2; exit 1; }
	refused "no memfd, a cache folder with noexec" "without noexec" \
		confined env XDG_CACHE_HOME="$work/noexec" "${no_memfd[@]}"
	refused "no memfd, a read-only cache folder" "set XDG_CACHE_HOME" \
		confined env XDG_CACHE_HOME="$work/cache2" "${no_memfd[@]}"
	refused "no memfd, no home" "there is no cache folder" confined env -u HOME -u XDG_CACHE_HOME "${no_memfd[@]}"
else
	echo "SKIPPED: no code in a memfd: strace"
fi
