#!/usr/bin/env python3
"""Finds .c files that call each other in a circle, by the names that their objects define and leave undefined.

    call_circles.py build/obj/HASH ROOM...            # prints circles with a file under a ROOM as FILE:1: what; fails if there are any
    call_circles.py build/obj/HASH ROOM... --arrows   # and which names tie each circle

What two files need of each other is a third file, or they are one. Circles that stay stand in tests/lint/call_circles.txt with the reason:
"PATTERN...: reason" accepts circles all of whose files match a pattern. A line that accepts nothing is an offence, too.
"""
import collections
import fnmatch
import glob
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from include_edges import circles  # noqa: E402

ACCEPTED = "tests/lint/call_circles.txt"
ROOMS = ("allocator", "bench", "examples", "loader", "runtime", "workers")


def sources():
    return sorted(path for room in ROOMS for path in glob.glob(f"{room}/**/*.c", recursive=True))


def is_made(source, place):
    """Not what was left of a former source: what `make test` does not build, it does not renew."""
    return os.path.exists(place) and os.path.getmtime(place) >= os.path.getmtime(source)


def symbols(objects):
    """{source: (names that it defines, names that it takes from others)} of {source: object}."""
    nm = subprocess.run(["nm", "-g", "-P", "-A", *objects.values()], capture_output=True, text=True, check=False)
    if nm.returncode:
        sys.exit(f"call circles: {nm.stderr.strip()}")
    source_of, table = {path: source for source, path in objects.items()}, {}
    for line in nm.stdout.splitlines():
        place, name, kind = line.split()[:3]
        defines, takes = table.setdefault(source_of[place.rstrip(":")], (set(), set()))
        (takes if kind in "Uwv" else defines).add(name)
    return table


def arrows(table):
    """{(file, file): names that the first takes from the second}. A name that several define (main) ties none of them."""
    owners, found = collections.defaultdict(list), collections.defaultdict(list)
    for source, (defines, _) in table.items():
        for name in defines:
            owners[name].append(source)
    for source, (_, takes) in table.items():
        for name in sorted(takes):
            if len(owners.get(name, ())) == 1:
                found[source, owners[name][0]].append(name)
    return found


def read_accepted():
    """[patterns] by line."""
    with open(ACCEPTED, encoding="utf-8") as text:
        lines = [line.split("#")[0].strip() for line in text]
    return [line.split(":", 1)[0].split() for line in lines if line]


def matches(path, patterns):
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def check(objects, without_object, rooms, show):
    ties, graph = arrows(symbols(objects)), collections.defaultdict(set)
    for a, b in ties:
        graph[a].add(b)
    accepted, used = read_accepted(), set()
    for part in circles(graph):
        allowed = [i for i, patterns in enumerate(accepted) if all(matches(path, patterns) for path in part)]
        used.update(allowed)
        if not allowed and any(path.startswith(f"{room}/") for path in part for room in rooms):
            yield f"{part[0]}:1: files that call each other in a circle: {' '.join(part)}"
            if show:
                yield from (f"    {a} -> {b}: {' '.join(names)}" for (a, b), names in sorted(ties.items()) if a in part and b in part)
    for i, patterns in enumerate(accepted):
        if i not in used and not any(matches(path, patterns) for path in without_object):
            yield f"{ACCEPTED}:1: there is no such circle: {' '.join(patterns)}"


def main():
    root, *rooms = [arg for arg in sys.argv[1:] if arg != "--arrows"] or sys.exit(__doc__)
    places = {source: f"{root}/{source[:-2]}.o" for source in sources()}
    objects = {source: place for source, place in places.items() if is_made(source, place)}
    if not objects:
        sys.exit(f"call circles: no objects under {root}: make binaries first")
    offences = list(check(objects, places.keys() - objects.keys(), rooms, "--arrows" in sys.argv))
    print("".join(f"{line}\n" for line in offences) + f"call circles: {sum(not o.startswith(' ') for o in offences)} offences in {len(objects)} files")
    sys.exit(bool(offences))


if __name__ == "__main__":
    main()
