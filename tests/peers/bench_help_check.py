#!/usr/bin/env python3
"""bench/fleet/fleet.py --help teaches, and what it cannot run it refuses in words."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, "bench/fleet/fleet.py")


def run(*words):
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, check=False, timeout=60)


def main():
    told = run("--help")
    assert told.returncode == 0, told.stderr
    listed = re.search(r"parts, in this order:\n(.*?)\n\n", told.stdout, re.S)[1].splitlines()
    parts = re.search(r"^PARTS = .* in \(([^)]*)\)", open(SCRIPT, encoding="utf-8").read(), re.M)[1].split(", ")
    assert [line.split()[0] for line in listed] == parts, listed
    assert all(len(line.split()) > 5 for line in listed), listed
    nowhere = run("/nowhere", "--only=simulator")
    assert nowhere.returncode == 2 and "/nowhere/switchyard is not there" in nowhere.stderr, nowhere
    unknown = run("/nowhere", "--only=nothing")
    assert unknown.returncode == 2 and all(part in unknown.stderr for part in parts), unknown
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
