"""Salus' packing experiment on a real server: 14 kinds of models, 3 of each, on one device, at a low rate."""
import random
import time

from server import Rows, Server, make_packages, mean, quantile

KINDS = ["resnet152", "resnet50", "resnet18", "inception_v3", "mobilenet_v2", "lstm_text", "bert_base", "bert_tiny", "mnist_cnn", "fashion_mlp",
         "fashion_vgg", "fashion_resnet18", "text_bilstm", "text_transformer"]
REPLICAS = 3


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=3, help="to each model, a round and mode")
    parser.add_argument("--gap-ms", type=float, default=30, help="mean pause between an answer and the next request")
    parser.add_argument("--kinds", nargs="+", default=KINDS, help="of models; fewer for a shorter run")
    parser.add_argument("--pool", default="5G")
    parser.add_argument("--device", default="host")
    parser.add_argument("--seed", type=int, default=1)


def ask_all(server, options, order, dice):
    """[(model, seconds)]: a rate so low that no two requests meet."""
    times = []
    for name in order:
        time.sleep(dice.expovariate(1e3 / options.gap_ms))
        times.append((name, server.client.ask(name).seconds))
    return times


def alone(server, options, names, dice):
    """Each model as if it were the only one: its own request came before each."""
    times = []
    for name in names:
        times += ask_all(server, options, [name] * (options.requests + 1), dice)[1:]
    return times


def packed(server, options, names, dice):
    order = names * options.requests
    dice.shuffle(order)
    return ask_all(server, options, order, dice)


def by_model(times):
    lists = {}
    for name, seconds in times:
        lists.setdefault(name, []).append(seconds)
    return lists


def run(options):
    kinds, dice, one, all_ = make_packages(options, options.kinds), random.Random(options.seed), [], []
    packages = {f"{kind}_{i}": package for i in range(1, REPLICAS + 1) for kind, package in kinds.items()}
    with Server(options, "--device", options.device, "--pool-bytes", options.pool, "--workers", 2) as server:
        begun = time.monotonic()
        server.load(packages)
        print(f"  {len(packages)} models loaded in {time.monotonic() - begun:.0f} s", flush=True)
        names = sorted(packages)
        ask_all(server, options, names * 2, dice)  # from storage into the pool
        swaps = server.status()["counters"]["swaps"]
        for number in range(options.rounds):
            for mode in (alone, packed) if number % 2 == 0 else (packed, alone):
                (one if mode is alone else all_).extend(mode(server, options, names, dice))
            print(f"  round {number}: mean {1e3 * mean([s for _, s in one]):.2f} ms alone, {1e3 * mean([s for _, s in all_]):.2f} ms packed", flush=True)
        status = server.status()
    one, all_ = by_model(one), by_model(all_)
    more = {name: 1e3 * (mean(all_[name]) - mean(one[name])) for name in names}
    worst = max(more, key=more.get)
    middle = {name: quantile(one[name], 0.5) for name in names}
    tails = [quantile([s / middle[name] for name in names for s in lists[name]], 0.99) for lists in (one, all_)]
    rows, n = Rows(options, "packing"), sum(map(len, all_.values()))
    rows.add(f"{len(names)} models on one device: mean latency over the model alone, ms, all models", mean(list(more.values())), "<= 5",
             mean(list(more.values())) <= 5, n=n, mean_alone_ms=1e3 * mean([mean(one[name]) for name in names]))
    rows.add("the same, the model that loses most", more[worst], "<= 5", more[worst] <= 5, model=worst, alone_ms=1e3 * mean(one[worst]))
    rows.add("p99 (of latency / that model's median alone), packed / alone", tails[1] / tails[0], "<= 1.1", tails[1] <= 1.1 * tails[0], n=n,
             alone=tails[0], packed=tails[1])
    rows.add("swaps after all were there", status["counters"]["swaps"] - swaps, "0", status["counters"]["swaps"] == swaps,
             resident_mb=sum(model["resident_bytes"] for model in status["models"]) / 1e6)
    rows.write()
