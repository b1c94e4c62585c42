#!/usr/bin/env python3
"""Benches: bench/fleet/fleet.py --help teaches, and what it and bench/corun.py cannot run they refuse in words; a run of some parts keeps of others what this CPU measured."""
import contextlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, "bench/fleet/fleet.py")
sys.path.insert(0, os.path.join(ROOT, "bench"))


def run(*words, script=SCRIPT):
    return subprocess.run([sys.executable, script, *words], capture_output=True, text=True, check=False, timeout=60)


def check_corun_words():
    corun = importlib.import_module("corun")
    unknown = run("/nowhere", "--only=pairs,nothing", script=corun.__file__)
    assert unknown.returncode == 2 and "nothing" in unknown.stderr and all(part in unknown.stderr for part in corun.PARTS), unknown


def corun_row(part, what):
    return {"what": what, "value": 1, "op": ">=", "bar": 1, "n": 1, "baseline": "", "part": part}


def check_corun_keeps():
    """Rows of a part that ran again go, whatever they say; others stay; nothing stays of another CPU or of another number of cores."""
    corun, results = importlib.import_module("corun"), importlib.import_module("results_md")

    def whats(path):
        with open(path, encoding="utf-8") as text:
            return [row["what"] for row in json.load(text)["rows"]]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bench/corun.json")
        corun.write(path, [corun_row("fill", "filled"), corun_row("sizes", "sized")], {})
        corun.write(path, [corun_row("fill", "filled, in new words"), corun_row("pairs", "paired")], {})
        assert whats(path) == ["paired", "filled, in new words", "sized"], whats(path)
        assert "| sized |" in results.part(path, "Computing", "make bench-corun")
        for key, value in (("cpu", "another"), ("cores", 64)):
            with open(path, encoding="utf-8") as text:
                told = {**json.load(text), key: value}
            with open(path, "w", encoding="utf-8") as text:
                json.dump(told, text)
            corun.write(path, [corun_row("fill", key)], {})
            assert whats(path) == [key], whats(path)
            corun.write(path, [corun_row("sizes", "sized")], {})


def check_torch_keeps():
    torch_jobs = importlib.import_module("torch_jobs")
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(None):
        path = os.path.join(folder, "torch.json")
        for goes_on, what in ((False, "old words"), (True, "new words")):
            rows = torch_jobs.Kept(path, True, goes_on)
            rows.add("beside", corun_row("beside", what))
            rows.add("beside", corun_row("beside", what + " again"))
            if not goes_on:
                rows.add("bits", corun_row("bits", "bits"))
        assert [row["what"] for row in rows.told["rows"]] == ["bits", "new words", "new words again"], rows.told
        rows.told["cpu"] = "another"
        rows.add("memory", corun_row("memory", "memory"))
        assert torch_jobs.Kept(path, True, True).told["rows"] == []


def check_older_methods():
    """A row that an older method measured says so, once; a row of the day of the change does not. Single rows go to their place, with their CPU."""
    results = importlib.import_module("results_md")
    what, since, how = results.OLDER[-1]
    row = dict(corun_row("lstm", what + ", a | b"), value=0, baseline="beside")
    assert how in results.line(row) and how not in results.line(dict(row, measured=since)) and how not in results.line(dict(row, what="another"))
    title = results.PARTS[0][1]
    lines = [f"# {title}", "", "Made by a bench; 1 of 2 bars are met.", "", "| what | bar | measured | beside | when |", "|---|---|---|---|---|",
             f"| {what}, a \\| b | >= 1 | **0** (n = 1) | beside |  |", "| other | >= 1 | 1 (n = 1) | | |", ""]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "RESULTS.md")
        for text in ("\n".join(lines), None):
            if text is None:
                text = stands
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
            stands = results.as_it_stands(path, title)
            assert stands.count(how) == 1 and stands.count("OLDER") == 1, stands
        told = results.with_rows(stands, {"rows": [dict(row, value=1, measured=since, commit="abc"), corun_row("", "new")], "cores": 2, "cpu": "a CPU"})
        assert "OLDER" not in told and "3 of 3 bars" in told and f"| {since}, abc, 2 cores of a CPU |" in told, told
        assert [text.split(" ")[1] for text in told.split("\n") if text.startswith("| ")] == ["what", "PyTorch", "other", "new"], told


def main():
    check_corun_words()
    check_older_methods()
    check_corun_keeps()
    check_torch_keeps()
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
