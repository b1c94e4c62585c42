"""Training jobs under torture: one of each kind at all times; each that ends must have the weights of one that was left alone."""
import json
import os
import subprocess
import threading
import time

from torture_server import switchyard

STEPS, SNAPSHOT_EVERY = 60, 7
KINDS = {
    "momentum": ("mnist_cnn", {"optimizer": {"kind": "sgd", "learning_rate": 0.05, "momentum": 0.9}, "accumulate": 2, "clip_norm": 0.5, "batch": 8}),
    "recompute": ("bert_tiny_sequence", {
        "optimizer": {"kind": "adam", "learning_rate": 0.001}, "recompute": True, "batch": 4, "data": {
            "kind": "synthetic", "samples": 50, "vocabulary": 1000, "inputs": {"input_ids": "random", "attention_mask": "mask", "token_type_ids": 0}}}),
    "schedule": ("fashion_mlp", {"optimizer": {"kind": "adamw", "learning_rate": 0.001, "weight_decay": 0.01}, "batch": 32,
                                 "schedule": {"kind": "cosine", "warmup_steps": 5, "steps": 50}}),
}


def make_job_models(build):
    folder = os.path.abspath(f"{build}/torture/job-models")
    subprocess.run([f"{build}/make-models", "--out", folder, *sorted({model for model, _ in KINDS.values()})], check=True, stdout=subprocess.DEVNULL)
    return folder


def job_of(kind, name, models, snapshots):
    model, keys = KINDS[kind]
    return {"name": name, "model": f"{models}/{model}/1/model.onnx", "data": {"kind": "synthetic", "samples": 200}, "epochs": 100000, "max_steps": STEPS, "seed": 5,
            "snapshot": {"folder": snapshots, "every_steps": SNAPSHOT_EVERY}, **keys}


def weights(snapshots, name):
    """The tensors' bytes of the job's last snapshot; None: it is not there."""
    try:
        with open(f"{snapshots}/{name}-{STEPS}.safetensors", "rb") as file:
            data = file.read()
    except OSError:
        return None
    return data[8 + int.from_bytes(data[:8], "little"):]


def train_alone(server, models, snapshots):
    """{kind: weights} of jobs that run one after another on a server that does nothing else."""
    alone = {}
    with server.client() as client:
        for kind in KINDS:
            try:
                job = client.jobs.submit(job_of(kind, f"alone-{kind}", models, snapshots))
            except switchyard.SwitchyardError as why:
                raise SystemExit(f"the idle server refuses the job '{kind}': {why}") from None
            client.jobs.wait(job, timeout=300, every=0.05)
            alone[kind] = weights(snapshots, f"alone-{kind}")
            assert alone[kind], f"job alone-{kind} has left no snapshot of step {STEPS} in {snapshots}"
    return alone


class Trainer:
    """Keeps one job of each kind going; compares each that ends. Finds its jobs again by name when the runtime was started anew."""

    def __init__(self, server, models, snapshots, alone, tag):
        self.server, self.models, self.snapshots, self.alone, self.tag = server, models, snapshots, alone, tag
        self.same, self.different, self.failed, self.lost, self.most_lost_steps = 0, [], [], [], 0
        self.count, self.names, self.admitted, self.seen_steps = 0, {}, set(), {}
        self.stopping, self.no_more = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        client = None
        while not self.stopping.is_set():
            try:
                client = client or self.server.client(30)
                self.look(client)
                if self.no_more.is_set() and not self.names:
                    break
            except (OSError, switchyard.SwitchyardError):
                if client:
                    client.close()
                client = None
            time.sleep(0.1)
        if client:
            client.close()

    def look(self, client):
        rows = {row["name"]: row for row in client.jobs.list()}
        for kind in KINDS:
            name = self.names.get(kind)
            if name is None:
                if not self.no_more.is_set():
                    self.count += 1
                    self.names[kind] = f"{self.tag}-{kind}-{self.count}"
                continue
            self.follow(client, kind, name, rows.get(name))

    def follow(self, client, kind, name, row):
        done = weights(self.snapshots, name)
        if done is not None and (row is None or row["state"] == "ended"):
            self.compare(kind, name, done)
        elif row is None and name in self.admitted:
            self.lost.append(name)
            del self.names[kind]
        elif row is None:
            client.jobs.submit(job_of(kind, name, self.models, self.snapshots))
            self.admitted.add(name)
        elif row["state"] == "failed":
            self.failed.append(f"{name}: {row['error']}")
            del self.names[kind]
        else:
            self.admitted.add(name)

    def compare(self, kind, name, done):
        if done == self.alone[kind]:
            self.same += 1
        else:
            self.different.append(name)
        del self.names[kind]
        for file in os.listdir(self.snapshots):
            if file.startswith(name + "-"):
                os.unlink(f"{self.snapshots}/{file}")

    def finish(self, seconds):
        """Waits until the jobs that run have ended; False: they have not in time."""
        self.no_more.set()
        self.thread.join(seconds)
        ended = not self.thread.is_alive()
        self.stopping.set()
        self.thread.join(30)
        return ended

    def say(self):
        return json.dumps({"same": self.same, "different": self.different, "failed": self.failed, "lost": self.lost, "unfinished": sorted(self.names.values())})
