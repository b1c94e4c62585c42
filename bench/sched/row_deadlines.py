"""Requests of mixed classes and deadlines at 80 % of what the server can do: who was promised is in time, and who was refused would have
been late.

Whether a refusal was right cannot be seen from the request that did not run. So some of those that are refused are sent again at
once, with a deadline that lets them in: what such a one takes is held against the prediction that refused it.
"""
import json
import random
import re
import threading
import time

from rpc import Client, ask_many
from server import Rows, Server, make_packages, mean, quantile, spread

KINDS = ["mobilenet_v2", "resnet18", "resnet50", "lstm_text", "bert_tiny", "mnist_cnn"]
# class, share of the requests, deadline: from, to so many times the model's own time plus the mean of all; None: none.
CLASSES = [(0, 0.3, (1.5, 6)), (1, 0.5, (3, 20)), (2, 0.2, None)]
PREDICTED = re.compile(r"done in ([\d.]+) ms \(([\d.]+) ms in the queue(?:, with margin ([\d.]+) ms)?")


def arguments(parser):
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--again", type=float, default=0.5, help="share of the refused ones that are sent again")
    parser.add_argument("--pool-share", type=float, default=0.6, help="pool / bytes of all models")
    parser.add_argument("--link-gbps", type=float, default=2)
    parser.add_argument("--deadlines", type=float, default=1, help="times so many, all of them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calls", help="JSON file to be written: every request, what was predicted of it and what it took")


def capacity(server, names, options, n=150):
    """Requests a second with always two under way, the seconds that each kind takes then, and the share of runs that are within 10 % of their
    kind's median: a prediction that knew the machine by heart would be right so often."""
    dice, order, lists, lock = random.Random(options.seed + 1), [], {}, threading.Lock()
    order = [dice.choice(names) for _ in range(n)]
    begun = time.monotonic()

    def ask():
        while True:
            with lock:
                if not order:
                    return
                name = order.pop()
            timing = server.client.ask(name).timing
            with lock:
                lists.setdefault(name, []).append(timing["run_ns"] / 1e9)
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    own = {name: quantile(times, 0.5) for name, times in lists.items()}
    steady = mean([0.9 <= seconds / own[name] <= 1.1 for name, times in lists.items() for seconds in times])
    return n / (time.monotonic() - begun), own, steady


def make_plan(names, rate, own, options):
    dice, at, plan = random.Random(options.seed), 0.0, []
    usual = mean(list(own.values()))
    for _ in range(options.requests):
        at += dice.expovariate(rate)
        name = dice.choice(names)
        class_, _, span = dice.choices(CLASSES, [share for _, share, _ in CLASSES])[0]
        deadline = options.deadlines * 1e3 * dice.uniform(*span) * (own[name] + usual) if span else None
        plan.append((at, name, {"class_": class_, "deadline_ms": deadline, "note": (class_, deadline)}))
    return plan


class Again:
    """Sends some of the refused ones again, on a connection of its own."""

    def __init__(self, server, options):
        self.client, self.options, self.dice = Client(server.socket), options, random.Random(options.seed + 2)
        self.client.inputs, self.calls = server.client.inputs, []

    def look(self, call):
        """In the reader's thread, right after the refusal."""
        found = call.error and PREDICTED.search(call.error.message)
        if not found or self.dice.random() >= self.options.again:
            return
        predicted, _, latest = (float(x) if x else None for x in found.groups())
        class_, deadline = call.note
        lets_in = 1.2 * (latest or predicted) + 1
        self.calls.append(self.client.infer(call.model, class_=class_, deadline_ms=lets_in, note=(predicted, deadline, latest, class_)))

    def outcome(self):
        """[(time / predicted, late by the deadline that was refused)] of those that were let in."""
        for call in self.calls:
            call.done.wait(60)
        self.client.close()
        took = [(call, call.timing["total_ns"] / 1e6) for call in self.calls if call.answer]
        return [(ms / call.note[0], ms > call.note[1]) for call, ms in took]


def write_calls(path, calls, again):
    """[class, model, deadline ms or none, predicted ms, with margin (of refused ones), took ms]: admitted ones, then those sent again."""
    rows = [[call.note[0], call.model, call.note[1], call.timing["predicted_ns"] / 1e6, None, call.timing["total_ns"] / 1e6] for call in calls if call.answer]
    rows += [[call.note[3], call.model, call.note[1], call.note[0], call.note[2], call.timing["total_ns"] / 1e6] for call in again if call.answer]
    with open(path, "w", encoding="utf-8") as out:
        json.dump(rows, out)


def report(rows, options, calls, again, rate, steady):
    failed = [call.error for call in calls if call.error and call.error.status != "EDEADLINE"]
    if failed:
        raise SystemExit(f"{len(failed)} requests failed; the first: {failed[0]}")
    taken = [call for call in calls if call.answer]
    refused = [call for call in calls if call.error]
    promised = [call for call in taken if call.note[1]]
    in_time = mean([call.timing["total_ns"] / 1e6 <= call.note[1] for call in promised])
    seen = mean([1e3 * call.seconds <= call.note[1] for call in promised])
    rows.add(f"of those admitted with a deadline, in time, at {100 * options.load:.0f} % load ({rate:.1f}/s)", in_time, ">= 0.999", in_time >= 0.999,
             n=len(promised), as_the_client_sees_it=seen, refused=len(refused), of=len(calls),
             ms={f"class {class_}": spread([1e3 * call.seconds for call in taken if call.note[0] == class_]) for class_, _, _ in CLASSES})
    for call in promised:
        if call.timing["total_ns"] / 1e6 > call.note[1]:
            print("  late: " + ", ".join([call.model, f"class {call.note[0]}", f"deadline {call.note[1]:.1f} ms"] + [
                f"{key[:-3]} {call.timing[key] / 1e6:.1f}" for key in ("predicted_ns", "total_ns", "queue_ns", "run_ns", "bound_ns")]
                + [f"attempts {call.timing['attempts']}"]))
    right = [0.9 <= ratio <= 1.1 for ratio, _ in again]
    rows.add("refused, sent again at once: time / prediction within 10 %", mean(right), "", None, n=len(again),
             ratio={"p10": quantile([ratio for ratio, _ in again], 0.1), "p50": quantile([ratio for ratio, _ in again], 0.5),
                    "p90": quantile([ratio for ratio, _ in again], 0.9)})
    justified = mean([late or ratio >= 0.9 for ratio, late in again])
    rows.add("refused rightly: late when sent again, or as predicted within 10 %", justified, ">= 0.99", justified >= 0.99 if again else None, n=len(again),
             would_have_been_late=mean([late for _, late in again]))
    ratios = [call.timing["total_ns"] / call.timing["predicted_ns"] for call in taken if call.note[0] == 0 and call.timing["predicted_ns"]]
    rows.add("admitted, the most urgent class: time / prediction", quantile(ratios, 0.5), "", None, n=len(ratios), p10=quantile(ratios, 0.1),
             p90=quantile(ratios, 0.9), within_10_percent=mean([0.9 <= ratio <= 1.1 for ratio in ratios]),
             runs_within_10_percent_of_their_median=steady)


def run(options):
    packages = make_packages(options, KINDS)
    with Server(options, "--device", "emulated,link-gbps=4", "--pool-bytes", "1G", "--workers", 2) as server:
        server.load(packages)
        total = sum(model["pool_bytes"] for model in server.status()["models"])
    pool = int(options.pool_share * total)
    with Server(options, "--device", f"emulated,link-gbps={options.link_gbps}", "--pool-bytes", pool, "--workers", 3) as server:
        server.load(packages)
        for name in KINDS * 2:
            server.client.ask(name)
        possible, own, steady = capacity(server, KINDS, options)
        print(f"  {len(KINDS)} models of {total / 1e6:.0f} MB, pool {pool / 1e6:.0f} MB; {possible:.1f} requests/s are possible; ms each: "
              + ", ".join(f"{name} {1e3 * s:.1f}" for name, s in own.items()), flush=True)
        again = Again(server, options)
        clients = [server.client] + [Client(server.socket) for _ in CLASSES[1:]]
        for client in clients:
            client.inputs = server.client.inputs
        calls = ask_many(clients, make_plan(KINDS, options.load * possible, own, options), look=again.look)
        for client in clients[1:]:
            client.close()
        rows = Rows(options, "deadlines")
        report(rows, options, calls, again.outcome(), options.load * possible, steady)
        if options.calls:
            write_calls(options.calls, calls, again.calls)
        counters = server.status()["counters"]
    rows.notes.update({key: counters[key] for key in ("swaps", "interrupts", "late", "refused_late")})
    rows.write()
