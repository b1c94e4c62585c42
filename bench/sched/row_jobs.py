"""Training jobs beside each other: what a switch costs, what an opportunistic job costs a guaranteed one, and who gets how much."""
import time

from server import Rows, Server, jain, make_models, quantile

# Unequal ones: network, batch.
JOBS = [("mnist_cnn", 16), ("fashion_mlp", 64), ("mnist_cnn", 4), ("fashion_mlp", 8), ("mnist_cnn", 32), ("fashion_mlp", 256),
        ("mnist_cnn", 8), ("fashion_mlp", 32)]
SWITCH_BAR_NS = 0.002 * 100e6  # 0.2 % of an iteration of 100 ms


def models_of(options):
    return {name: f"{folder}/model.onnx" for name, folder in make_models(options, sorted({model for model, _ in JOBS})).items()}


class Window:
    """What happened between two looks at the server: nanoseconds as it counts them."""

    def __init__(self, server, seconds):
        before, begun = server.seen()
        time.sleep(seconds)
        after, ended = server.seen()
        self.elapsed = ended["elapsed_ns"] - begun["elapsed_ns"]
        self.steps, self.busy, self.device = ({name: after[name][key] - before[name][key] for name in after}
                                              for key in ("step", "busy_ns", "device_ns"))


# ---- a switch ----

def switch_arguments(parser):
    parser.add_argument("--seconds", type=float, default=3, help="of each phase")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--device", default="host")


def switch(options):
    """Two like jobs. Alone a job keeps its turn; together they take turns at each iteration. What is lost to switching is the time in
    which neither computed; what it costs in all (caches too) is what an iteration takes more than alone."""
    models, lost, kept, cost, n = models_of(options), [], [], [], 0
    with Server(options, "--device", options.device, "--pool-bytes", "256M", "--workers", 3) as server:
        for name in ("a", "b"):
            server.train(name, models["mnist_cnn"], options.batch)
        server.client.call("policy", policy="rr")
        server.wait_steps(20)
        for _ in range(options.rounds):
            alone = {}
            for name, other in (("a", "b"), ("b", "a")):
                server.suspend(other)
                time.sleep(0.1)
                window = Window(server, options.seconds / 2)
                alone[name] = window.elapsed / window.steps[name]
                kept.append((window.elapsed - window.busy[name]) / window.steps[name])
                server.suspend(other, False)
            time.sleep(0.1)
            both = Window(server, options.seconds)
            switches = sum(both.steps.values())
            n += switches
            lost.append((both.elapsed - sum(both.busy.values())) / switches)
            cost.append((both.elapsed - sum(both.steps[name] * alone[name] for name in alone)) / switches)
            print(f"  {switches} switches: {lost[-1] / 1e3:.1f} us between two iterations, {cost[-1] / 1e3:.1f} us more than alone "
                  f"(iteration {alone['a'] / 1e6:.2f} ms)", flush=True)
    rows, middle = Rows(options, "switch"), quantile(lost, 0.5)
    rows.add("switch between two resident jobs / iteration of 100 ms", middle / 100e6, "<= 0.002", middle <= SWITCH_BAR_NS, n=n,
             lost_us={"p50": middle / 1e3, "p99": quantile(lost, 0.99) / 1e3, "min": min(lost) / 1e3},
             between_two_of_one_job_us=quantile(kept, 0.5) / 1e3,
             more_than_alone_us={"p50": quantile(cost, 0.5) / 1e3, "p99": quantile(cost, 0.99) / 1e3, "min": min(cost) / 1e3})
    rows.write()


# ---- opportunistic beside guaranteed ----

def beside_arguments(parser):
    parser.add_argument("--seconds", type=float, default=3, help="of each phase")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--device", default="host")


def phase(server, options, steps):
    """The guaranteed job's time for a step, from its return on: whatever the other had begun meanwhile is in its way."""
    server.suspend("guaranteed")
    time.sleep(0.3)
    server.suspend("guaranteed", False)
    window = Window(server, options.seconds)
    steps.append(window.steps["opportunistic"])
    return window.elapsed / window.steps["guaranteed"]


def beside(options):
    models, times, steps = models_of(options), {"alone": [], "beside": []}, {"alone": [], "beside": []}
    with Server(options, "--device", options.device, "--pool-bytes", "256M", "--workers", 3) as server:
        server.train("guaranteed", models["mnist_cnn"], 8)
        server.train("opportunistic", models["mnist_cnn"], 16, **{"class": "opportunistic"})
        server.wait_steps(0)
        for number in range(options.rounds):
            for mode in ["alone", "beside"] if number % 2 == 0 else ["beside", "alone"]:
                server.suspend("opportunistic", mode == "alone")
                times[mode].append(phase(server, options, steps[mode]))
                print(f"  round {number} {mode}: {times[mode][-1] / 1e6:.3f} ms a step, {steps[mode][-1]} opportunistic ones", flush=True)
        jobs, _ = server.seen()
    if jobs["opportunistic"]["step"] == 0:
        raise SystemExit("the opportunistic job made no step: nothing was measured")
    rows, ratio = Rows(options, "beside"), quantile(times["beside"], 0.5) / quantile(times["alone"], 0.5)
    rows.add("guaranteed job's step beside an opportunistic one / alone", ratio, "<= 1.02", ratio <= 1.02, n=options.rounds,
             **{f"{mode}_ms": {"p50": quantile(list_, 0.5) / 1e6, "p99": quantile(list_, 0.99) / 1e6, "min": min(list_) / 1e6}
                for mode, list_ in times.items()},
             ratio_of_minima=min(times["beside"]) / min(times["alone"]), opportunistic_steps=jobs["opportunistic"]["step"])
    rows.write()


# ---- shares ----

def fair_arguments(parser):
    parser.add_argument("--seconds", type=float, default=60, help="for each count of jobs, and for the weighted shares; default 60")
    parser.add_argument("--counts", type=int, nargs="+", default=[8], help="of jobs, 2 to 8; default 8 alone")
    parser.add_argument("--weights", type=int, nargs="+", default=[1, 2, 5])
    parser.add_argument("--device", default="host")


def share_window(server, options, seconds):
    window = Window(server, seconds)
    if not all(window.device.values()):
        raise SystemExit(f"some job had no time at all: {window.device}")
    return window


def equal_shares(options, models, count, rows):
    """The last job comes when a third of the time is over: from then on it has as much as the others."""
    with Server(options, "--device", options.device, "--pool-bytes", "1G", "--workers", count + 1) as server:
        server.client.call("policy", policy="fair")
        for i, (model, batch) in enumerate(JOBS[:count - 1]):
            server.train(f"job{i}", models[model], batch)
        if count > 2:
            server.wait_steps(1)
        time.sleep(options.seconds / 3)
        model, batch = JOBS[count - 1]
        server.train("late", models[model], batch)
        window = share_window(server, options, options.seconds)
    shares, index = [ns / window.elapsed for ns in window.device.values()], jain(list(window.device.values()))
    rows.add(f"fair, {count} unequal jobs, the last one late, {options.seconds:g} s: Jain", index, ">= 0.99", index >= 0.99,
             n=sum(window.steps.values()), shares=shares, idle=1 - sum(shares), steps=list(window.steps.values()))


def weighted_shares(options, models, rows):
    weights = {f"tenant{i}": weight for i, weight in enumerate(options.weights)}
    with Server(options, "--device", options.device, "--pool-bytes", "1G", "--workers", len(weights) + 1) as server:
        server.client.call("policy", policy="weighted")
        for i, (tenant, weight) in enumerate(weights.items()):
            server.client.call("tenant", tenant=tenant, weight=weight)
            server.train(f"job{i}", models[JOBS[i][0]], JOBS[i][1], tenant=tenant)
        server.wait_steps(1)
        window = share_window(server, options, options.seconds)
    total, all_weights = sum(window.device.values()), sum(weights.values())
    shares = [window.device[f"job{i}"] / total for i in range(len(weights))]
    worst = max(abs(share * all_weights / weight - 1) for share, weight in zip(shares, weights.values()))
    rows.add(f"weighted {options.weights}, {options.seconds:g} s: farthest share from its weight, relative", worst, "<= 0.02", worst <= 0.02,
             n=sum(window.steps.values()), shares=shares)


def fair(options):
    models, rows = models_of(options), Rows(options, "fair")
    for count in options.counts:
        equal_shares(options, models, count, rows)
    weighted_shares(options, models, rows)
    rows.write()
