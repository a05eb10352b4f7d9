#!/usr/bin/env bash
# Tries to break programs under the pager: see eval/soak/campaign.py.
#
# usage: eval/soak.sh HOURS | --short | --kills N | --count PROGRAM=N [--option=OPTION]... | --report
exec python3 "$(dirname "$0")/soak/campaign.py" "$@"
