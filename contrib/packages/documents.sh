#!/usr/bin/env bash
# Writes what a package has beside the programs: manual pages, completions, and the licences of all that is linked in.
#
# usage: contrib/packages/documents.sh COMMAND FOLDER
set -euo pipefail
[ $# = 2 ] || { echo "usage: documents.sh COMMAND FOLDER" >&2; exit 2; }
[ -x "$1" ] || { echo "documents.sh: $1 is no command: build flashvm first" >&2; exit 2; }

mkdir -p "$2/man"
"$1" man --out "$2/man"
for shell in bash zsh fish; do "$1" completions "$shell" >"$2/flashvm.$shell"; done
"$(dirname "$0")/notices.py" >"$2/THIRD-PARTY.txt"
