"""The table's rows, from what was measured of each model ({name: record}); a record that is refused or wrong has no times."""
import json
import os
import re
import subprocess

import numpy as np

SUITE_S = 1800
NODE_CASES = "/usr/share/libonnx-testdata/data"


def ratios(records, wanted):
    """[(ratio, "NAME batch B")] of all times of the records that `wanted` takes."""
    return [(ours / theirs, f"{name}, batch {batch}") for name, r in records.items() if wanted(r)
            for batch, ours, theirs in zip(r["batches"], r.get("ours_ms", []), r.get("ort_ms", []))]


def mean_row(what, bar, found):
    value = float(np.exp(np.mean(np.log([r for r, _ in found])))) if found else None
    over = sum(r > 1 for r, _ in found)
    return row(what, value, "<=", bar, len(found), f"{over} of {len(found)} over 1.0")


def worst_row(what, bar, found):
    value, where = max(found) if found else (None, "nothing was measured")
    return row(what, value, "<=", bar, len(found), where)


def row(what, value, op, bar, n, baseline, **also):
    return {"what": what, "value": value, "op": op, "bar": bar, "n": n, "baseline": baseline, **also}


def count_row(what, records, key):
    found = {name: r[key] for name, r in records.items() if r.get(key)}
    first = "; ".join(f"{name}: {why}" for name, why in list(found.items())[:12])
    return row(what, len(found), "==", 0, len(records), first or "none")


def node_row(build):
    """ONNX's own node tests, by the program of `make test-onnx`."""
    what, suite = "ONNX's node tests: refused", f"{build}/tests/onnx_suite"
    if not os.path.exists(suite) or not os.path.isdir(NODE_CASES):
        return row(what, None, "<=", 20, 0, "", why=f"{suite} or {NODE_CASES} is not there")
    text = subprocess.run([suite, NODE_CASES], capture_output=True, text=True, timeout=SUITE_S, check=False).stdout
    passed, refused, failed = map(int, re.search(r"^node +(\d+) passed +(\d+) refused +(\d+) failed", text, re.M).groups())
    return row(what, refused, "<=", 20, passed + refused + failed, f"{passed} passed, {failed} failed")


def rows_beside(build):
    """Rows that other measurements left beside: token times of decoders, memory after many sizes."""
    rows = []
    for name in ("token_time", "many_sizes"):
        try:
            with open(f"{build}/bench/{name}.json", encoding="utf-8") as text:
                rows += json.load(text)["rows"]
        except (OSError, ValueError, KeyError):
            continue
    return rows


def all_rows(records):
    plain = {n: r for n, r in records.items() if not r["kind"]}
    detectors = {n: r for n, r in records.items() if r["kind"] == "detector"}
    held, look = ({n: r for n, r in plain.items() if r["half"] == half} for half in ("held", "look"))
    any_of = lambda r: True  # noqa: E731
    int8 = ratios(records, lambda r: r["kind"] == "int8")
    rows = [mean_row("held-out half, f32, batch 1 and 8: ours / ONNX Runtime, geometric mean", 1.0, ratios(held, any_of)),
            worst_row("held-out half: worst single model", 1.2, ratios(held, any_of)),
            mean_row("half that was looked at: geometric mean", 1.0, ratios(look, any_of)),
            worst_row("half that was looked at: worst single model", 1.2, ratios(look, any_of))]
    rows += [worst_row(f"sized at run: {name}", 1.05, ratios({name: r}, any_of)) for name, r in detectors.items()]
    rows += [count_row("legal models refused", records, "refused"), count_row("models with wrong results, 3 sizes each", records, "wrong"),
             mean_row("int8 / ONNX Runtime's int8: geometric mean", 1.0, int8), worst_row("int8: worst single model", 1.1, int8)]
    return rows
