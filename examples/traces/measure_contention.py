#!/usr/bin/env python3
"""Measures how much slower two training jobs are beside each other than the simulator's model says (--contention of
`switchyard simulate`, M3 in runtime/sim/README.md).

    python3 examples/traces/measure_contention.py [--binary build/switchyard] [--device host] [--seconds 5] [--rounds 5]

Two jobs of the example network run at one server, by turns alone (policy fair: one iteration at a time, so that the device is one
job's at any moment) and beside each other (policy pack). Each uses all of the device, so without contention the steps of both
together are as many in the same time; contention is what is missing: steps in turns ÷ steps beside each other - 1. Phases are
interleaved, so that a machine that is busy with other things slows both alike; the median over rounds counts.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time


def call(binary, address, *words):
    done = subprocess.run([binary, *words, "--socket", address], check=True, capture_output=True, text=True)
    return done.stdout


def steps(binary, address):
    jobs = json.loads(call(binary, address, "status", "--json"))["jobs"]
    return sum(job["step"] for job in jobs if job["state"] not in ("failed", "done", "stopped"))


def rate(binary, address, policy, seconds):
    call(binary, address, "policy", policy)
    time.sleep(0.5)
    begun, before = time.monotonic(), steps(binary, address)
    time.sleep(seconds)
    return (steps(binary, address) - before) / (time.monotonic() - begun)


def job_file(folder, number, model):
    data = "/usr/share/datasets/fashion-mnist/"
    job = {"name": f"contender_{number}", "model": os.path.abspath(model), "loss": "softmax_cross_entropy",
           "optimizer": {"kind": "sgd", "learning_rate": 0.01, "momentum": 0.9},
           "data": {"kind": "idx", "images": data + "train-images-idx3-ubyte.gz",
                    "labels": data + "train-labels-idx1-ubyte.gz", "mean": 0.286, "std": 0.353},
           "batch": 64, "epochs": 1000, "seed": number,
           "snapshot": {"folder": f"{folder}/snapshots_{number}", "every_seconds": 3600}}
    path = f"{folder}/job_{number}.json"
    with open(path, "w", encoding="utf-8") as out:
        json.dump(job, out)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/switchyard")
    parser.add_argument("--model", default="build/models/mnist_cnn/1/model.onnx")
    parser.add_argument("--device", default="host")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/socket"
        server = subprocess.Popen([arguments.binary, "serve", "--http", "off", "--grpc", "off", "--metrics", "off", "--device", arguments.device, "--pool-bytes", "1G",
                                   "--workers", "4", "--socket", f"{folder}/socket"],
                                  stdout=subprocess.PIPE, stderr=open(f"{folder}/log", "w"), text=True)
        try:
            while "ready" not in server.stdout.readline():
                if server.poll() is not None:
                    raise SystemExit(open(f"{folder}/log").read())
            for number in (1, 2):
                call(arguments.binary, address, "train", job_file(folder, number, arguments.model))
            while steps(arguments.binary, address) < 20:
                time.sleep(0.5)
            found = []
            for _ in range(arguments.rounds):
                turns = rate(arguments.binary, address, "fair", arguments.seconds)
                beside = rate(arguments.binary, address, "pack", arguments.seconds)
                found.append(turns / beside - 1)
                print(f"in turns {turns:.1f} steps a second, beside each other {beside:.1f}: contention {found[-1]:+.3f}", flush=True)
            print(f"contention: median {statistics.median(found):+.3f} of {len(found)}")
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
