#!/usr/bin/env python3
"""lint.sh in a small tree of its own: it passes what is right, shows what a check prints, and fails where a check breaks before it has printed anything."""
import os
import shutil
import subprocess
import sys
import tempfile

LINT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lint.sh")
CHECKS = ("tests/lint/include_edges.py", "tests/fuzz/coverage.py")


def write(folder, path, text):
    os.makedirs(os.path.dirname(f"{folder}/{path}"), exist_ok=True)
    with open(f"{folder}/{path}", "w", encoding="ascii") as out:
        out.write(text)


def lint(folder):
    return subprocess.run(["bash", f"{folder}/tests/lint/lint.sh"], capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL, env={**os.environ, "LINT_TIDY": "0"})


def check(folder):
    write(folder, "tests/small.h", "#pragma once\n")
    write(folder, "tests/small.c", '#include "tests/small.h"\n')
    for path in CHECKS:
        write(folder, path, "pass\n")
    shutil.copy(LINT, f"{folder}/tests/lint/lint.sh")
    for words in (["init", "--quiet"], ["add", "-A"]):
        subprocess.run(["git", "-C", folder, *words], check=True)
    good = lint(folder)
    assert good.returncode == 0 and "lint: 0 offences" in good.stdout, good
    for path in CHECKS:
        write(folder, path, "raise SystemExit('told: a broken table')\n")
        broken = lint(folder)
        assert broken.returncode == 1 and "lint: 1 offences" in broken.stdout and path in broken.stdout and "a broken table" in broken.stderr, broken
        write(folder, path, "print('a:1: first')\nprint('b:2: second')\nraise SystemExit(1)\n")
        offended = lint(folder)
        assert offended.returncode == 1 and "b:2: second\n" in offended.stdout and "lint: 2 offences" in offended.stdout, offended
        write(folder, path, "pass\n")


def main():
    with tempfile.TemporaryDirectory() as folder:
        check(folder)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
