#!/usr/bin/env python3
"""Tests bench/zoo/zoo_compare.py: detections that tie may change places, others may not; what variants of the reference excuse, and what not.
Needs numpy."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build/venv/bin/python")
if os.path.exists(VENV) and os.path.realpath(sys.prefix) != os.path.realpath(os.path.join(ROOT, "build/venv")):
    os.execv(VENV, [VENV, *sys.argv])

import numpy as np  # noqa: E402

sys.path.insert(0, os.path.join(ROOT, "bench", "zoo"))

from zoo_compare import compare  # noqa: E402

NAMES = ["boxes", "scores", "labels"]


def found(order, scores):
    rng = np.random.default_rng(1)
    boxes, labels = rng.uniform(0, 300, (len(scores), 4)).astype(np.float32), np.arange(len(scores))
    return [boxes[order], np.asarray(scores, np.float32)[order], labels[order]]


def check(order, scores, right, detects=True, change=None):
    refs, ours = found(list(range(len(scores))), scores), found(order, scores)
    if change:
        change(ours)
    why = compare(NAMES, dict(zip(NAMES, ours)), refs, [refs], False, detects)
    assert (why is None) == right, (order, scores, why)


def move_box(outputs):
    outputs[0][1] += 40


def check_noise(ours, variants, right):
    """One output of floats, one of integers, of a reference of zeros."""
    refs = [np.zeros(50, np.float32), np.zeros(50, np.int64)]
    told = [[np.full(50, v, np.float32), np.full(50, w)] for v, w in variants]
    values = {"x": np.full(50, ours[0], np.float32), "n": np.full(50, ours[1])}
    why = compare(["x", "n"], values, refs, told, False)
    assert (why is None) == right, (ours, variants, why)


def check_nan(wrong_at, right):
    """A variant without a number in one place, and ours off in another, if in any."""
    ref = np.ones(50, np.float32)
    variant, ours = ref.copy(), ref.copy()
    variant[7] = np.nan
    if wrong_at is not None:
        ours[wrong_at] = 3
    why = compare(["x"], {"x": ours}, [ref], [[variant], [ref]], False)
    assert (why is None) == right and (right or f"element {wrong_at} " in why), (wrong_at, why)


def check_shapes(n_ours, n_variants, right, off=0.0):
    """Outputs of so many elements; the reference has 5."""
    ours = np.ones(n_ours, np.float32)
    ours[0] += off
    why = compare(["x"], {"x": ours}, [np.ones(5, np.float32)], [[np.ones(n, np.float32)] for n in n_variants], False)
    assert (why is None) == right, (n_ours, n_variants, off, why)


def main():
    tied, apart = [0.9, 0.5, 0.500002, 0.3], [0.9, 0.51, 0.5, 0.3]
    check([0, 1, 2, 3], apart, True)
    check([0, 2, 1, 3], tied, True)
    check([0, 2, 1, 3], tied, False, detects=False)
    check([0, 2, 1, 3], apart, False)
    check([3, 1, 2, 0], tied, False)
    check([0, 2, 1, 3], tied, False, change=move_box)
    check_noise((0.5, 0), [(0.01, 0)], False)
    check_noise((0.5, 0), [(0.01, 0), (0.2, 0)], True)
    check_noise((0, 3), [(0, 0), (0, 2)], False)
    check_noise((0, 3), [(0, 0), (0, 3)], True)
    check_nan(None, True)
    check_nan(20, False)
    check_nan(7, False)
    check_shapes(5, [5, 4], True)
    check_shapes(5, [5, 4], False, off=2.0)
    check_shapes(5, [4, 4], False, off=2.0)
    check_shapes(4, [5, 4], True)
    check_shapes(6, [5, 4], False)
    check_shapes(4, [5, 5], False)
    print("19 passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    main()
