#!/usr/bin/env python3
"""Prints what a trained text_lstm writes.

    sample_text.py SNAPSHOT_FOLDER JOB [--bytes 400] [--start TEXT] [--heat 0.7] [--seed 1]
"""
import argparse
import json
import pathlib
import re
import sys

import numpy as np


def newest(folder, job):
    found = [(int(m[1]), p) for p in pathlib.Path(folder).glob(f"{job}-*.safetensors")
             if (m := re.fullmatch(rf"{re.escape(job)}-(\d+)\.safetensors", p.name))]
    if not found:
        sys.exit(f"{folder}: no snapshot of '{job}'")
    return max(found)[1]


def read(path):
    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + n])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(raw[8 + n + begin:8 + n + end], np.float32).reshape(entry["shape"])
    return tensors


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Writer:
    """One LSTM layer, gates in ONNX's order: input, output, forget, cell."""

    def __init__(self, tensors):
        self.table = tensors["embedding.weight"]
        self.w, self.r, bias = (tensors[f"lstm.{k}"][0] for k in ("weight_ih", "weight_hh", "bias"))
        half = len(bias) // 2
        self.bias = bias[:half] + bias[half:]
        self.head, self.head_bias = tensors["head.weight"], tensors["head.bias"]
        self.h = np.zeros(self.r.shape[1], np.float32)
        self.c = np.zeros_like(self.h)

    def step(self, byte):
        i, o, f, g = np.split(self.w @ self.table[byte] + self.r @ self.h + self.bias, 4)
        self.c = sigmoid(f) * self.c + sigmoid(i) * np.tanh(g)
        self.h = sigmoid(o) * np.tanh(self.c)
        return self.h @ self.head + self.head_bias


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("job")
    parser.add_argument("--bytes", type=int, default=400)
    parser.add_argument("--start", default="La commande ")
    parser.add_argument("--heat", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    path = newest(options.folder, options.job)
    writer, random = Writer(read(path)), np.random.default_rng(options.seed)
    text = bytearray(options.start.encode())
    for byte in text:
        logits = writer.step(byte)
    for _ in range(options.bytes):
        weights = np.exp((logits - logits.max()) / options.heat)
        byte = int(random.choice(256, p=weights / weights.sum()))
        text.append(byte)
        logits = writer.step(byte)
    print(f"{path}:\n{text.decode(errors='replace')}")


main()
