#!/usr/bin/env python3
"""Token time of GPT-2 small (random weights) at 128 past positions: a session of a real server beside ONNX Runtime, batch 1 and 8.

Each side computes the same tokens, one side in turns of one token with the other; both on the same one core and thread. ONNX Runtime is given its
present as the next past without a copy; our time is that of the client's call, with the protocol, and with the program that each new
length needs. Rows go to build/bench/decoder.json."""
import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, "build/venv/bin/python")
if os.path.exists(VENV) and os.path.realpath(sys.prefix) != os.path.realpath(os.path.join(ROOT, "build/venv")):
    os.execv(VENV, [VENV] + sys.argv)
sys.path[:0] = [os.path.join(ROOT, "tests/peers"), os.path.join(ROOT, "runtime/python")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402

import decoder_models  # noqa: E402
import switchyard  # noqa: E402

PAST, LAYERS, HEADS, WIDTH, VOCABULARY = 128, 12, 12, 64, 50257
NEAR = 1e-4  # of scores near 1


def inputs(tokens, past):
    rows, n = tokens.shape
    return {"input_ids": tokens, "attention_mask": np.ones((rows, past + n), np.int64),
            "position_ids": np.broadcast_to(np.arange(past, past + n), (rows, n)).copy()}


class Theirs:
    def __init__(self, path, rows, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # it would disturb the other side
        self.model = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.names = [port.name for port in self.model.get_outputs()]
        empty = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((rows, HEADS, 0, WIDTH), np.float32))
        self.past = {name.replace("present", "past_key_values"): empty for name in self.names[1:]}

    def step(self, given):
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in given.items()}
        found = self.model.run_with_ort_values(self.names, {**values, **self.past})
        self.past = {name.replace("present", "past_key_values"): value for name, value in zip(self.names[1:], found[1:])}
        return found[0].numpy()


def timed(call, *args):
    start = time.perf_counter()
    return call(*args), time.perf_counter() - start


def measure(client, path, rows, args):
    """Seconds a token of both sides, and the largest difference of scores."""
    theirs, ours, worst = [], [], 0.0
    reference = Theirs(path, rows, args.threads)
    tokens, past = np.random.default_rng(1).integers(0, VOCABULARY, (rows, PAST)), 0
    with client.session("gpt2_small") as session:
        for i in range(args.tokens + 3):
            given = inputs(tokens, past)
            wanted, their_s = timed(reference.step, given)
            result, our_s = timed(session.infer, given)
            worst = max(worst, float(np.abs(result["logits"] - wanted).max()))
            if i >= 3:  # the prompt, and what is only done once
                theirs.append(their_s)
                ours.append(our_s)
            past += tokens.shape[1]
            tokens = wanted[:, -1:].argmax(-1)
    return theirs, ours, worst


def row_of(rows, theirs, ours, worst):
    their_s, our_s = statistics.median(theirs), statistics.median(ours)
    return {"name": f"decoder_{rows}", "what": f"GPT-2 small, token time at {PAST} past, batch {rows} / ONNX Runtime",
            "value": round(our_s / their_s, 3), "op": "<=", "bar": 1.0, "n": len(ours), "baseline": f"{their_s * 1e3:.2f} ms",
            "p50_ms": round(our_s * 1e3, 3), "p99_ms": round(sorted(ours)[int(len(ours) * 0.99)] * 1e3, 3), "min_ms": round(min(ours) * 1e3, 3),
            "baseline_min_ms": round(min(theirs) * 1e3, 3), "tokens_per_s": round(rows / our_s, 1), "worst_difference": worst,
            "right": worst <= NEAR}


def serve(args, folder, package):
    command = [os.path.join(args.build, "switchyard"), "serve", "--package", package, "--socket", os.path.join(folder, "socket"), "--http",
               "off", "--grpc", "off", "--metrics", "off", "--threads", str(args.threads), "--workers", "2", "--slab-bytes", "1Gi"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if process.stdout.readline().strip() != "ready":
        sys.exit("decoder: the server did not start")
    return process


def bench(args, folder):
    path, package = (os.path.join(folder, "gpt2_small." + kind) for kind in ("onnx", "sypkg"))
    onnx.save(decoder_models.gpt2_small(), path)
    subprocess.run([os.path.join(args.build, "switchyard"), "import", path, "--no-profile", "--name", "gpt2_small", "-o", package], check=True)
    process = serve(args, folder, package)
    rows = []
    try:
        with switchyard.Client("unix:" + os.path.join(folder, "socket")) as client:
            for batch in args.batch:
                rows.append(row_of(batch, *measure(client, path, batch, args)))
                print(json.dumps(rows[-1]), flush=True)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    return rows


def commit():
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--tokens", type=int, default=40, help="so many are timed, from %d past on" % PAST)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = bench(args, folder)
    os.makedirs(os.path.join(args.build, "bench"), exist_ok=True)
    with open(os.path.join(args.build, "bench/decoder.json"), "w") as file:
        json.dump({"rows": rows, "commit": commit(), "machine": platform.processor() or platform.machine(), "threads": args.threads,
                   "onnxruntime": onnxruntime.__version__}, file, indent=1)
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
