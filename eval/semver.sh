#!/usr/bin/env bash
# Compares the public items of the crates `flashvm` and `gordon` with those of an earlier commit: a change that breaks programs needs a
# higher version number (cargo-semver-checks).
#
# usage: eval/semver.sh [REVISION]
#   REVISION  the commit to compare with; by default the newest release, a tag v*
#
# Ends with 77 if there is nothing to compare with, or no cargo-semver-checks (`cargo install cargo-semver-checks`).
set -euo pipefail
cd "$(dirname "$0")/.."

cargo semver-checks --version >/dev/null 2>&1 || exit 77
revision=${1:-$(git describe --tags --match 'v*' --abbrev=0 2>/dev/null || true)}
[ -n "$revision" ] || exit 77
git rev-parse --quiet --verify "$revision^{commit}" >/dev/null || {
	echo "semver.sh: $revision: no such commit: name another" >&2
	exit 2
}
cargo semver-checks -p flashvm -p gordon --baseline-rev "$revision"
