#!/usr/bin/env python3
"""Holds the includes of the sources against tests/lint/include_edges.txt: which folder may include from which.

    include_edges.py            # prints offences as FILE:LINE: what
    include_edges.py --table    # prints the table as the sources have it, to compare with the file
    include_edges.py --draw loader        # arrows between the folders of one room as a Mermaid graph, for its README

An offence is an include without an arrow in the table, an arrow that no include needs, arrows that make a circle, and headers that
include each other in a circle. Tests and benches may include all.
"""
import collections
import os
import re
import subprocess
import sys

TABLE = "tests/lint/include_edges.txt"
FREE = ("tests/", "bench/")  # may include what they like; nobody includes them


def sources():
    listed = subprocess.run(["git", "ls-files", "*.c", "*.h", "*.cc", "*.cu", "*.cuh"], capture_output=True, text=True, check=True).stdout
    return listed.split()


def includes_of(path):
    with open(path, encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            found = re.match(r'#include "([^"]+)"', line)
            if found:
                yield number, found[1]


def read_table():
    """{folder: [folders that it may include]}"""
    table = {}
    with open(TABLE, encoding="utf-8") as text:
        for line in text:
            line = line.split("#")[0].strip()
            if line:
                folder, allowed = line.split(":")
                table[folder.strip()] = allowed.split()
    return table


def folder_edges(files):
    """{(folder, folder): [(file, line, included)]}"""
    edges, known = collections.defaultdict(list), set(files)
    for path in files:
        if path.startswith(FREE):
            continue
        for number, included in includes_of(path):
            if included in known and os.path.dirname(included) != os.path.dirname(path):
                edges[os.path.dirname(path), os.path.dirname(included)].append((path, number, included))
    return edges


def header_edges(files):
    """{header: set of headers}"""
    known = set(files)
    return {path: {h for _, h in includes_of(path) if h in known} for path in files if path.endswith((".h", ".cuh"))}


def circles(edges):
    """Strongly connected parts of more than one, each sorted (Tarjan, 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for to in sorted(edges.get(node, ())):
            if to not in index:
                visit(to)
                low[node] = min(low[node], low[to])
            elif to in stack:
                low[node] = min(low[node], index[to])
        if low[node] == index[node]:
            part = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(part) > 1:
                found.append(sorted(part))
    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def as_table(edges):
    table = collections.defaultdict(list)
    for a, b in sorted(edges):
        table[a].append(b)
    return table


def check(files):
    edges, table = folder_edges(files), read_table()
    for (a, b), where in sorted(edges.items()):
        if b not in table.get(a, ()):
            yield from (f"{path}:{number}: {a} may not include {included} ({TABLE})" for path, number, included in where)
    for a, allowed in table.items():
        yield from (f"{TABLE}:1: no file of {a} includes one of {b}" for b in allowed if (a, b) not in edges)
    yield from (f"{TABLE}:1: folders in a circle: {' '.join(part)}" for part in circles({a: set(b) for a, b in table.items()}))
    yield from (f"{part[0]}:1: headers that include each other in a circle: {' '.join(part)}" for part in circles(header_edges(files)))


def draw(files, room):
    print("```mermaid\ngraph BT")
    for a, b in sorted(folder_edges(files)):
        if a.startswith(room) and b.startswith(room):
            print(f"    {os.path.relpath(a, room)} --> {os.path.relpath(b, room)}")
    print("```")


def main():
    files = sources()
    if "--table" in sys.argv:
        for folder, allowed in as_table(folder_edges(files)).items():
            print(f"{folder}: {' '.join(allowed)}")
    elif "--draw" in sys.argv:
        draw(files, sys.argv[sys.argv.index("--draw") + 1])
    else:
        for offence in check(files):
            print(offence)


if __name__ == "__main__":
    main()
