#!/usr/bin/env bash
# Does flashvm page programs in a real container with the engine's default seccomp profile, which forbids userfaultfd and
# io_uring? Podman runs each command on the host's root as an overlay (`--rootfs /:O`), once as root and once as an ordinary
# user, both at a time: `flashvm doctor`, the README's run, torture, and real programs whose output is compared with that of
# a run without flashvm. Then come containers that lack something: each must be refused with one line and exit code 2.
#
# usage: eval/container.sh [--short]        (Linux 6.15, as root; podman, runc, cc, c++, perl, python3)
#
# FLASHVM names the command (default target/release/flashvm), PODMAN_RUN the words that run a container. --short: small
# sizes, and most parts of torture and programs for one of the users only; else the README's run has its real size, and torture
# parts of 5 s. Exits with 77 if no container starts here.
set -euo pipefail
cd "$(dirname "$0")/.."

flashvm=${FLASHVM:-target/release/flashvm}
# Of each user: further words for torture, and the programs of eval/programs.py (none: all). The README's run: budget and
# lines.
torture_of=() programs_of=()
case ${1:-} in
--short)
	short=(--short) readme=(16M 400000) torture=(--mib 24 --seconds 0.3 --threads 3)
	# Together all parts.
	torture_of=([0]="--only rewrite,fork,syscalls,exit,table"
		[65534]="--only rewrite,zero,syscalls,forking,remap,protect,guard,signals,alloc,threads,exit")
	programs_of=([0]="sort go" [65534]="memcached python")
	;;
"") short=() readme=(128M 6000000) torture=(--mib 24 --seconds 5 --threads 3) ;;
*)
	echo "container.sh: $1: no such option: --short, or nothing" >&2
	exit 2
	;;
esac
[ "$(id -u)" = 0 ] || { echo "container.sh: the host's root becomes the container's: run it as root" >&2; exit 2; }
[ -x "$flashvm" ] || { echo "container.sh: $flashvm does not exist; run cargo build --release" >&2; exit 2; }

work=$(mktemp -d -p /var/tmp)
label=eval-container=$$
declare -A running=()
trap 'clean' EXIT
trap 'exit 130' INT TERM
clean() {
	local left
	[ ${#running[@]} = 0 ] || kill "${running[@]}" 2>/dev/null || true
	left=$(podman ps --all --quiet --filter "label=$label" 2>/dev/null) || true
	# shellcheck disable=SC2086 # one word a container
	[ -z "$left" ] || podman rm --force --time 0 $left >/dev/null
	rm -rf "$work"
}

# By default Podman asks for limits that may be above the host's.
read -ra run <<<"${PODMAN_RUN:-podman --runtime runc run --network none --ulimit nofile=1024:1024 --ulimit nproc=4096:4096}"
run+=(--rm --env PATH --label "$label" --volume "$work/in:/mnt:ro")
mkdir "$work/in"
chmod 755 "$work" "$work/in"

# inside OPTION... -- COMMAND...: in a container of its own.
inside() {
	local options=()
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	timeout --kill-after=10 1800 "${run[@]}" "${options[@]}" --rootfs /:O "$@"
}

if ! inside -- true 2>"$work/error"; then
	echo "SKIPPED: container.sh: no container starts here: $(tail -n 1 "$work/error")"
	exit 77
fi

failed() {
	echo "FAILED: $*" >&2
	exit 1
}

tests/torture/build.sh "$work/in"
mkdir "$work/in/eval"
cp -r eval/{programs,programs.py,imagemagick.py,models} "$work/in/eval"
mkdir "$work/in/tests"
cp -r tests/carried "$work/in/tests"
cp examples/sort.sh "$work/in"
cp "$flashvm" "$work/in/flashvm"
chmod -R a+rX "$work/in"

# The numbers of errors of userfaultfd(UFFD_USER_MODE_ONLY), which the kernel permits to everybody, and of io_uring_setup.
errors='my $p = "\0" x 120; for ([323, 1], [425, 8, $p]) { $! = 0; syscall $_->[0], $_->[1], $_->[2] // 0; print $! + 0, "\n" }'

# refused NAME TEXT COMMAND...: one line that has TEXT, and exit code 2.
refused() {
	local name=$1 text=$2 said status=0
	shift 2
	said=$("$@" 2>&1) || status=$?
	[ $status = 2 ] || failed "$name: exit code $status instead of 2: $said"
	[ "$(wc -l <<<"$said")" = 1 ] || failed "$name: more than one line: $said"
	grep -qF -- "$text" <<<"$said" || failed "$name: no word of \"$text\": $said"
	echo "$name: refused: $said"
}

# paged NAME COMMAND...: it ends well, in protect mode, and pages went out. Leaves what it printed in $out.
paged() {
	local name=$1 status=0
	shift
	"$@" >"$out" 2>"$out.err" || status=$?
	[ $status = 0 ] || { tail -n 20 "$out" "$out.err" >&2; failed "$name: exit code $status"; }
	summary "$name"
}

# The summary of the run in $out.err: its mode, and that it paged: to flash or, compressed, within RAM.
summary() {
	grep -qF '(protect mode' "$out.err" || failed "$1: not in protect mode: $(tail -n 20 "$out.err")"
	grep -qE '^  (out|pool) +[1-9]' "$out.err" || failed "$1: nothing was paged out: $(tail -n 20 "$out.err")"
	echo "$1: $(grep -oE 'exit code .* mode,' "$out.err" | tr -d '(,'), $(sed -n 's/^  \(out\|pool\) *\([^;]*\).*/\1 \2/p' "$out.err" | paste -sd,)"
}

# All that a user of the container does: $1 is the user.
user() {
	local in=(inside --user "$1:$1" --) found status words seed=$((RANDOM * 32768 + RANDOM))
	out=$work/out.$1

	"${in[@]}" /mnt/flashvm doctor >"$out" || failed "doctor: exit code $?"
	found=$(head -n 1 "$out")
	[[ $found == "Programs run here: faults protect,"* ]] || failed "doctor: $found"
	echo "doctor: $found"

	found=$("${in[@]}" perl -e "$errors" | tr '\n' ' ')
	# EPERM for the first, EPERM or ENOSYS for the second.
	[[ $found =~ ^1\ (1|38)\ $ ]] || failed "userfaultfd and io_uring_setup give the errors $found"
	echo "userfaultfd and io_uring_setup: errors $found"
	for mode in inline handler; do
		refused "--fault $mode" "userfaultfd is not permitted" \
			"${in[@]}" /mnt/flashvm run --fault $mode --ram 16M -- true
	done

	paged "the README's run, ${readme[1]} lines" "${in[@]}" /mnt/flashvm run --ram "${readme[0]}" -- sh /mnt/sort.sh "${readme[1]}"
	tail -n 1 "$out"

	read -ra words <<<"${torture_of[$1]:-}"
	paged "torture, seed $seed" "${in[@]}" /mnt/flashvm run --ram 8M --flash-size 8G -- \
		/mnt/torture "${torture[@]}" "${words[@]}" --seed "$seed"
	grep -E ' ok in |not exercised: vmsplice|all checks held' "$out"
	grep -q 'all checks held' "$out" || failed "torture did not reach its end"
	status=0
	"${in[@]}" /mnt/flashvm run --ram 8M --inject "read=400000,flip=400000,write=1000,seed=$seed" -- \
		/mnt/sigbus 24 3 >"$out" 2>"$out.err" || status=$?
	# 3: a page of the C library was lost.
	[ $status = 0 ] || [ $status = 3 ] || { tail -n 20 "$out" "$out.err" >&2; failed "sigbus: exit code $status"; }
	grep -q 'are lost' "$out.err" || failed "sigbus: no fault reached the program: $(tail -n 20 "$out.err")"
	summary sigbus
	paged torture_cxx "${in[@]}" /mnt/flashvm run --ram 8M --flash-size 8G -- /mnt/torture_cxx 8 "$seed"

	read -ra words <<<"${programs_of[$1]:-}"
	# Compares each with a run without flashvm, and demands that pages went out.
	"${in[@]}" /usr/bin/python3 /mnt/eval/programs.py "${short[@]}" --flashvm /mnt/flashvm \
		"${words[@]/#/--only=}" >"$out" 2>&1 || { cat "$out" >&2; failed "real programs"; }
	grep -E 'same output|SKIPPED' "$out"
	grep -q 'same output' "$out" || failed "no real program ran"
}

for id in 0 65534; do
	(user $id) >"$work/said.$id" 2>&1 &
	running[$id]=$!
done
bad=
for id in 0 65534; do
	wait "${running[$id]}" || bad=1
	unset "running[$id]"
	echo "== as user $id"
	cat "$work/said.$id"
done
[ -z "$bad" ] || exit 1

echo "== a program that changes its user"
out=$work/out
paged "as root, then as user 65534" inside -- /mnt/flashvm run --ram 8M --flash-size 8G -- \
	setpriv --reuid=65534 --regid=65534 --clear-groups /mnt/torture --only rewrite,forking --mib 24 --seconds 0.1
grep -q 'all checks held' "$out" || failed "torture did not reach its end"

echo "== containers that lack something"
refused "a read-only root" "read-only file system" \
	inside --read-only --read-only-tmpfs=false -- /mnt/flashvm run --ram 16M -- true
refused "folders in RAM" "is on tmpfs, which is RAM" \
	inside --tmpfs /tmp:notmpcopyup --tmpfs /var/tmp:notmpcopyup -- /mnt/flashvm run --ram 16M -- true
refused "a store in RAM" "--flash /dev/shm: on tmpfs, which is RAM" \
	inside -- /mnt/flashvm run --ram 16M --flash /dev/shm -- true
refused "a limit below the budget" "more than the memory cgroup's limit of 64 MiB" \
	inside --memory 64m -- /mnt/flashvm run --ram 128M -- true
refused "no /proc" "/proc is not mounted" \
	inside --cap-add SYS_ADMIN -- sh -c 'umount -l /proc && exec /mnt/flashvm run --ram 16M -- true'
echo "container.sh: all held"
