#!/usr/bin/env python3
"""Allows userfaultfd and io_uring in a container engine's own seccomp profile, and nothing else.

usage: seccomp.py [PROFILE.json] > flashvm-seccomp.json

PROFILE.json is the engine's default profile: /usr/share/containers/seccomp.json of Podman, or profiles/seccomp/default.json
of github.com/moby/profiles for Docker. Without an argument: Podman's.

    podman run --security-opt seccomp=flashvm-seccomp.json IMAGE flashvm run --ram 512M -- PROGRAM
"""

import json
import sys

CALLS = ["userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register"]
PODMANS = "/usr/share/containers/seccomp.json"


def with_calls(profile):
    """The profile with a rule that allows the calls, whatever other rules said of them."""
    for rule in profile["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name not in CALLS]
    profile["syscalls"] = [rule for rule in profile["syscalls"] if rule["names"]]
    profile["syscalls"].append({"names": CALLS, "action": "SCMP_ACT_ALLOW"})
    return profile


def main():
    if len(sys.argv) > 2 or sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0 if len(sys.argv) == 2 else 2
    path = sys.argv[1] if len(sys.argv) == 2 else PODMANS
    try:
        with open(path, encoding="utf-8") as file:
            profile = json.load(file)
        rules = profile["syscalls"]
        assert all(isinstance(rule["names"], list) for rule in rules)
    except OSError as error:
        print(f"seccomp.py: {path}: {error.strerror}: name the engine's default profile", file=sys.stderr)
        return 2
    except (ValueError, KeyError, TypeError, AssertionError):
        print(f"seccomp.py: {path}: no seccomp profile: name the engine's default profile", file=sys.stderr)
        return 2
    json.dump(with_calls(profile), sys.stdout, indent="\t")
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
