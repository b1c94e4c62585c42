#!/usr/bin/env python3
"""Writes what the benches left in build/bench, and what was measured on GPUs (bench/results/), as Markdown: bench/RESULTS.md. Nothing in it is typed by hand.

    python3 bench/results_md.py [FOLDER [RESULTS.md]]
    python3 bench/results_md.py --add FILE...    # single rows of FILE, named as in a bench's folder, to what stands in RESULTS.md: with date, commit, CPU

A part whose file is not in FOLDER stays as it stands in RESULTS.md. Rows that an older method measured say so.
"""
import glob
import itertools
import json
import os
import re
import sys

HOLDS = {"<=": lambda value, bar: value <= bar, ">=": lambda value, bar: value >= bar, "==": lambda value, bar: value == bar}
PARTS = [("serve.json", "Serving: results", "make bench-serve"), ("zoo.json", "The zoo: results", "make bench-zoo"),
         ("corun.json", "Computing at the same time: results", "make bench-corun"), ("fleet.json", "Fleets: results", "make bench-fleet"),
         ("torch.json", "PyTorch jobs: results", "make bench-torch"), ("remote.json", "Other machines: results", "make bench-remote")]

# How rows that begin so were measured until a day from which on they are measured in another way.
OLDER = [("HTTP, p99 at half that rate", "2026-11-28", "the rate measured only; stalls of the generator are not told apart"),
         ("gRPC, p99 at half that rate", "2026-11-28", "the rate measured only; stalls of the generator are not told apart"),
         ("simulated / replayed mean latency", "2026-11-28", "one trace, by times that were measured alone once; now five, each by times right before its replay"),
         ("run time of a confined job", "2026-11-28", "by the job alone once; now by the job without a neighbour right before and after"),
         ("p99 of an interactive model beside", "2026-11-28", "by one time of runs alone; now by runs right before and after, median of rounds"),
         ("PyTorch step with us / without", "2026-11-28", "single steps in strict turns, which favour whatever has a period of two; now blocks, on, off, off, on")]
ROW = re.compile(r"(?<!\\)\|")


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def number(value):
    if value is None:
        return "none"
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def line(row):
    value, met = row["value"], row["value"] is not None and HOLDS[row["op"]](row["value"], row["bar"])
    shown = number(value) if met else f"**{number(value)}**"
    beside = row.get("why") or row["baseline"] or ""
    return marked(f"| {cell(row['what'])} | {row['op']} {number(row['bar'])} | {shown} (n = {row['n']}) | {cell(beside)} | {row.get('measured', '')} |")


def marked(text):
    """A line of a table; where an older method measured it, with that method before what stands beside."""
    cells = ROW.split(text)
    if len(cells) != 7:
        return text
    how = next((f" OLDER METHOD ({how});" for what, since, how in OLDER if cells[1].strip().startswith(what) and cells[5].strip() < since), "")
    if how and not cells[4].startswith(how):
        cells[4] = how + cells[4]
    return "|".join(cells)


def model_lines(models):
    """Each model of the zoo: ratios, or why there are none."""
    lines = ["", "## Each model", "", "Ours / ONNX Runtime, run time without RPC.", "", "| model | half | batch 1 | batch 8 | ONNX Runtime, ms |", "|---|---|---|---|---|"]
    for name, r in sorted(models.items()):
        told = [ours / theirs for ours, theirs in zip(r.get("ours_ms", []), r.get("ort_ms", []))]
        cells = [f"{v:.2f}" for v in told] + [""] * (2 - len(told))
        what = ", ".join(f"{t:.3g}" for t in r.get("ort_ms", [])) or "refused: " * ("refused" in r) + r.get("refused", "") + "wrong: " * ("wrong" in r) + r.get("wrong", "")
        lines.append(f"| {name} | {r['kind'] or r['half']} | {cells[0]} | {cells[1]} | {cell(what)} |")
    return lines


def part(path, title, command):
    with open(path, encoding="utf-8") as text:
        told = json.load(text)
    rows = told["rows"]
    met = sum(row["value"] is not None and HOLDS[row["op"]](row["value"], row["bar"]) for row in rows)
    lines = [f"# {title}", "", f"Made by `{command}` on {told['cores']} cores of {told['cpu']}; {met} of {len(rows)} bars are met, what is missed is bold.",
             "", "| what | bar | measured | beside, in the same run | when |", "|---|---|---|---|---|", *map(line, rows)]
    if any(row.get("quick") for row in [*rows, *told.get("models", {}).values()]):
        lines.insert(3, "Rows of a quick run are among them: their numbers say little.")
    return "\n".join(lines + (model_lines(told["models"]) if "models" in told else [])) + "\n"


def gpu_part(path):
    """What `make gpu-bench` measured on one GPU on one day; what it did not come to is counted."""
    with open(path, encoding="utf-8") as text:
        told = json.load(text)
    rows = [dict(row, op=">=" if row["at_least"] else "<=") for row in told["rows"]]
    done = [row for row in rows if row["measured"] is not None]
    met = sum(HOLDS[row["op"]](row["measured"], row["bar"]) for row in done)
    lines = [f"# On a GPU: {told['device']}, {told['date']}", "",
             f"Made by `make gpu-bench` (driver {told['driver']}, {cell(told['commit'].splitlines()[0])}); {met} of {len(done)} bars are met, what is missed is bold. "
             f"{len(rows) - len(done)} further rows were not measured.", "", "| what | bar | measured |", "|---|---|---|"]
    for row in done:
        shown = f"{row['measured']:.3g}"
        lines.append(f"| {cell(row['what'])} | {row['op']} {number(row['bar'])} | {shown if HOLDS[row['op']](row['measured'], row['bar']) else f'**{shown}**'} |")
    return "\n".join(lines) + "\n"


def as_it_stands(target, title):
    """The part of that title in the file, or nothing."""
    if not os.path.exists(target):
        return ""
    with open(target, encoding="utf-8") as text:
        found = ("\n" + text.read()).split("\n# ")
    return next(("\n".join(map(marked, ("# " + p.rstrip("\n")).split("\n"))) + "\n" for p in found if p.startswith(title)), "")


def bars_of(lines):
    """Where the table of bars lies: the first of the part."""
    first = next(k for k, text in enumerate(lines) if text.startswith("|"))
    return list(itertools.takewhile(lambda k: lines[k].startswith("|"), range(first, len(lines))))


def with_rows(standing, told):
    """A part as it stands with the rows that a bench's file has: each in the place of the one with the same words, else behind all others."""
    lines = standing.split("\n")
    for row in told["rows"]:
        when = ", ".join(filter(None, (row.get("measured"), row.get("commit"), f"{told['cores']} cores of {told['cpu']}")))
        new = line({**row, "measured": when})
        tables = bars_of(lines)
        at = next((k for k in tables if ROW.split(lines[k])[1] == ROW.split(new)[1]), tables[-1] + 1)
        lines[at:at + (at in tables)] = [new]
    rows = [ROW.split(lines[k])[3] for k in bars_of(lines)][2:]
    return re.sub(r"\d+ of \d+ bars", f"{sum('**' not in value for value in rows)} of {len(rows)} bars", "\n".join(lines), count=1)


def add(files, target):
    parts = {name: as_it_stands(target, title) for name, title, _ in PARTS}
    with open(target, encoding="utf-8") as text:
        rest = ("\n" + text.read()).split("\n# On a GPU", 1)[1:]
    for path in files:
        if not parts.get(os.path.basename(path)):
            sys.exit(f"{path}: {target} has no part of that name; it has {', '.join(name for name, text in parts.items() if text)}")
        with open(path, encoding="utf-8") as text:
            parts[os.path.basename(path)] = with_rows(parts[os.path.basename(path)], json.load(text))
    with open(target, "w", encoding="utf-8") as out:
        out.write("\n".join([p for p in parts.values() if p] + ["# On a GPU" + r for r in rest]))


def main():
    if sys.argv[1:2] == ["--add"]:
        return add(sys.argv[2:], "bench/RESULTS.md")
    source, target = (sys.argv[1:] + ["build/bench", "bench/RESULTS.md"][len(sys.argv) - 1:])[:2]
    parts = [part(f"{source}/{name}", title, command) if os.path.exists(f"{source}/{name}") else as_it_stands(target, title)
             for name, title, command in PARTS]
    parts += [gpu_part(path) for path in sorted(glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "results", "*.json")))]
    with open(target, "w", encoding="utf-8") as out:
        out.write("\n".join(p for p in parts if p))
    print(target)
    return None


if __name__ == "__main__":
    main()
