"""Training's guaranteed share under a flood of requests, and what requests have left under any training load."""
import threading
import time

from row_jobs import JOBS, Window, models_of
from rpc import Client
from server import Rows, Server, make_packages, quantile

MODELS = ["mobilenet_v2", "resnet18"]


def arguments(parser):
    parser.add_argument("--train-share", type=float, default=0.3)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--connections", type=int, default=8, help="each always has a request under way")
    parser.add_argument("--seconds", type=float, default=5, help="of each phase")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="host")


class Flood:
    """As many requests as the connections can have, until it is stopped. .n counts those that were answered."""

    def __init__(self, server, options):
        self.n, self.ending, self.failure = 0, False, None
        self.clients = [Client(server.socket) for _ in range(options.connections)]
        self.threads = [threading.Thread(target=self.ask, args=(server, i)) for i in range(options.connections)]
        for thread in self.threads:
            thread.start()

    def ask(self, server, i):
        client = self.clients[i]
        client.inputs = server.client.inputs
        try:
            while not self.ending:
                client.ask(MODELS[(i + self.n) % len(MODELS)])
                self.n += 1
        except Exception as why:  # shown by stop
            self.failure = why

    def stop(self):
        self.ending = True
        for thread in self.threads:
            thread.join()
        for client in self.clients:
            client.close()
        if self.failure:
            raise SystemExit(f"a request failed: {self.failure}")


def flood_phase(server, options):
    flood = Flood(server, options)
    time.sleep(0.5)
    begun, first = time.monotonic(), flood.n
    window = Window(server, options.seconds)
    rate = (flood.n - first) / (time.monotonic() - begun)
    flood.stop()
    return window, rate


def suspend_all(server, suspended):
    for name in server.jobs:
        server.suspend(name, suspended)


def run(options):
    models, share = models_of(options), options.train_share
    alone, beside, trained, free = [], [], [], []
    with Server(options, "--device", options.device, "--pool-bytes", "1G", "--workers", options.jobs + 2) as server:
        server.load(make_packages(options, MODELS))
        for i, (model, batch) in enumerate(JOBS[:options.jobs]):
            server.train(f"job{i}", models[model], batch)
        server.wait_steps(1)
        for _ in range(options.rounds):
            suspend_all(server, True)
            alone.append(flood_phase(server, options)[1])
            suspend_all(server, False)
            server.client.call("policy", train_share=share)
            window, rate = flood_phase(server, options)
            beside.append(rate)
            trained.append(sum(window.device.values()) / window.elapsed)
            server.client.call("policy", train_share=0)
            free.append(flood_phase(server, options)[1])
            print(f"  requests: {alone[-1]:.1f}/s without training, {rate:.1f}/s beside it (training has {100 * trained[-1]:.1f} %), "
                  f"{free[-1]:.1f}/s where it has no share", flush=True)
        n = server.status()["counters"]["requests"]
    rows = Rows(options, "share")
    had = quantile(trained, 0.5)
    rows.add(f"training's share of the time under a flood, {share:g} guaranteed", had, f">= {share:g}", had >= share, n=options.rounds,
             min=min(trained), requests=n)
    left = quantile([b / a for a, b in zip(alone, beside)], 0.5)
    rows.add(f"requests a second beside {options.jobs} jobs / without them, training's share {share:g}", left, f">= {0.95 * (1 - share):g}",
             left >= 0.95 * (1 - share), n=options.rounds, alone={"p50": quantile(alone, 0.5)}, beside={"p50": quantile(beside, 0.5)})
    whole = quantile([f / a for a, f in zip(alone, free)], 0.5)
    rows.add("the same, training without a guaranteed share", whole, ">= 0.95", whole >= 0.95, n=options.rounds)
    rows.write()
