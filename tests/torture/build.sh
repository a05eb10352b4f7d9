#!/usr/bin/env bash
# Builds the torture programs of the campaigns: torture, sigbus, torture_cxx.
#
# usage: tests/torture/build.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")"
[ -d "${1:-}" ] || { echo "build.sh: name an existing folder: build.sh FOLDER" >&2; exit 2; }
cc -O2 -g -pthread -o "$1/torture" {torture,rewrite,fork,syscalls,table,table_ways,remap,protect,guard,signals,alloc,exit}.c
cc -O2 -g -o "$1/sigbus" sigbus.c
c++ -O2 -g -pthread -o "$1/torture_cxx" torture_cxx.cc
