#!/usr/bin/env python3
"""Writes the table of build/bench/serve.json as Markdown: bench/RESULTS.md. Nothing in it is typed by hand.

    python3 bench/results_md.py [SERVE.json [RESULTS.md]]
"""
import json
import sys

HOLDS = {"<=": lambda value, bar: value <= bar, ">=": lambda value, bar: value >= bar, "==": lambda value, bar: value == bar}


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
    return f"| {cell(row['what'])} | {row['op']} {number(row['bar'])} | {shown} (n = {row['n']}) | {cell(beside)} | {row.get('measured', '')} |"


def main():
    source, target = (sys.argv[1:] + ["build/bench/serve.json", "bench/RESULTS.md"][len(sys.argv) - 1:])[:2]
    with open(source, encoding="utf-8") as text:
        told = json.load(text)
    rows = told["rows"]
    met = sum(row["value"] is not None and HOLDS[row["op"]](row["value"], row["bar"]) for row in rows)
    lines = ["# Serving: results", "", f"Made by `make bench-serve` on {told['cores']} cores of {told['cpu']}; {met} of {len(rows)} bars are met, what is missed is bold.",
             "", "| what | bar | measured | beside, in the same run | when |", "|---|---|---|---|---|", *map(line, rows)]
    if any(row.get("quick") for row in rows):
        lines.insert(3, "Rows of a quick run are among them: their numbers say little.")
    with open(target, "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")
    print(target)


if __name__ == "__main__":
    main()
