"""Pool of half the models' size: heads kept and brought back, against eviction of whole models, on the same requests."""
import random

from rpc import ask_many
from server import Rows, Server, make_packages, mean, quantile, spread

KINDS = ["resnet18", "resnet50", "inception_v3", "mobilenet_v2", "lstm_text"]


def arguments(parser):
    parser.add_argument("--replicas", type=int, default=4, help="of each kind of model; default 4: 20 models")
    parser.add_argument("--zipf", type=float, default=1.0)
    parser.add_argument("--pool-share", type=float, default=0.5, help="pool / bytes of all models; default 0.5")
    parser.add_argument("--ratio", type=float, default=2.0, help="transfer / compute over all models, which sets the link's rate; default 2")
    parser.add_argument("--load", type=float, default=0.7, help="of what whole models can serve, for the requests that do not wait for each other")
    parser.add_argument("--requests", type=int, default=100, help="one after the other, a round and mode; half as many before, unmeasured")
    parser.add_argument("--arrivals", type=int, default=120, help="Poisson, a round and mode")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)


def names_of(packages, replicas):
    """By popularity: the kinds in turn, so that neither large nor small ones are the popular ones."""
    return {f"{kind}_{i}": package for i in range(replicas) for kind, package in packages.items()}


def look(options, packages):
    """Bytes that each kind takes in the pool, and the seconds it computes when all is there."""
    with Server(options, "--device", "emulated,link-gbps=4", "--pool-bytes", "2G", "--workers", 2) as server:
        server.load(packages)
        sizes = {model["name"]: model["pool_bytes"] for model in server.status()["models"]}
        seconds = {}
        for kind in packages:
            runs = [server.client.ask(kind).timing for _ in range(6)]
            seconds[kind] = quantile([run["run_ns"] / 1e9 for run in runs[2:]], 0.5)
    return sizes, seconds


def draw(names, options, seed, n):
    """Which model each request is for."""
    weights = [1 / (i + 1) ** options.zipf for i in range(len(names))]
    return random.Random(1000 * options.seed + seed).choices(list(names), weights, k=n)


def poisson(models, rate, seed):
    dice, at, plan = random.Random(seed), 0.0, []
    for model in models:
        at += dice.expovariate(rate)
        plan.append((at, model, {}))
    return plan


def one_after_the_other(server, models):
    return [server.client.ask(model).seconds for model in models]


def run_mode(options, packages, pool, gbps, mode, number, rate):
    """Latencies one by one, rate (made of them if not given), latencies of Poisson arrivals, bytes moved."""
    arguments_ = ["--device", f"emulated,link-gbps={gbps:.4f}", "--pool-bytes", pool, "--workers", 3]
    with Server(options, *arguments_, *(["--whole-models"] if mode == "whole" else [])) as server:
        server.load(packages)
        for name in sorted(packages):  # all in the image, so that storage is out of it
            server.client.ask(name)
        one_after_the_other(server, draw(packages, options, 100 + number, options.requests // 2))
        before = server.status()["counters"]
        alone = one_after_the_other(server, draw(packages, options, 200 + number, options.requests))
        after = server.status()["counters"]
        rate = rate or options.load / mean(alone)
        calls = ask_many(server.client, poisson(draw(packages, options, 300 + number, options.arrivals), rate, 400 + number))
        failed = [call.error for call in calls if call.error]
        if failed:
            raise SystemExit(f"{len(failed)} requests failed; the first: {failed[0]}")
        moved = (after["moved_bytes"] - before["moved_bytes"]) / options.requests
        return alone, rate, [call.seconds for call in calls], moved


def run(options):
    kinds = make_packages(options, KINDS)
    sizes, seconds = look(options, kinds)
    gbps = sum(sizes.values()) / 1e9 / (options.ratio * sum(seconds.values()))
    packages = names_of(kinds, options.replicas)
    total = options.replicas * sum(sizes.values())
    pool = int(options.pool_share * total)
    print(f"  {len(packages)} models of {total / 1e6:.0f} MB, pool {pool / 1e6:.0f} MB, link {gbps:.2f} GB/s (emulated); transfer / compute: "
          + ", ".join(f"{kind} {sizes[kind] / 1e9 / gbps / seconds[kind]:.1f}" for kind in kinds), flush=True)
    alone, open_, moved, rate = {"heads": [], "whole": []}, {"heads": [], "whole": []}, {"heads": [], "whole": []}, None
    for number in range(options.rounds):
        for mode in ["whole", "heads"] if number % 2 == 0 else ["heads", "whole"]:
            one, rate, many, bytes_ = run_mode(options, packages, pool, gbps, mode, number, rate)
            alone[mode] += one
            open_[mode] += many
            moved[mode].append(bytes_)
            print(f"  round {number} {mode}: mean {1e3 * mean(one):.1f} ms one by one, {1e3 * mean(many):.1f} ms at {rate:.1f}/s, "
                  f"{bytes_ / 1e6:.1f} MB a request", flush=True)
    rows = Rows(options, "residency")
    for what, times in ((f"arriving at {options.load:g} of what whole models can serve", open_), ("one after the other", alone)):
        ratio = mean(times["heads"]) / mean(times["whole"])
        rows.add(f"pool at {100 * options.pool_share:.0f} %, Zipf {options.zipf:g}, {len(packages)} models, {what}: mean latency, heads / whole models",
                 ratio, "<= 0.7", ratio <= 0.7, heads_s=spread(times["heads"]), whole_s=spread(times["whole"]))
    rows.add("bytes moved a request, heads / whole models", mean(moved["heads"]) / mean(moved["whole"]), "", None, link_gbps=gbps)
    rows.write()
