#!/usr/bin/env python3
"""Tortures a real server: clients of every interface and training jobs of several kinds, while workers and the runtime are killed, stopped and starved.
Each answer must have the bits of an idle system's, each job the weights of one that was left alone. Writes report.html and report.json to --out.

    tests/torture/torture.py                       # two minutes
    tests/torture/torture.py --hours 8
    tests/torture/torture.py --deaths 10000        # so many deaths of workers, in one life of one runtime
    tests/torture/torture.py --workers 2 --interface http --serve "--device emulated --pool-bytes 20M"
    tests/torture/torture.py --short               # what `make test` runs
"""
import argparse
import bisect
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
VENV = os.path.join(ROOT, "build/venv/bin/python")
if os.path.exists(VENV) and os.path.abspath(sys.executable) != VENV and "SY_IN_VENV" not in os.environ:
    os.execve(VENV, [VENV, *sys.argv], dict(os.environ, SY_IN_VENV="1"))
sys.path.insert(0, HERE)
try:
    import torture_clients as clients
    import torture_connections as connections
    import torture_faults as faults
    import torture_hostile as hostile
    import torture_jobs as jobs
    import torture_recovery as recovery
    import torture_report as report
    import torture_server as server_of
except ImportError as missing:
    print(f"skipped: {missing}; make venv installs it")
    sys.exit(77)

HANG_SECONDS, STUCK_SECONDS = 2, 60
DESCRIPTORS_BEYOND = 16
# The pool holds less than the models; the other round has all of them resident and reads weights where they lie.
ROUNDS = {"emulated": ["--device", "emulated,link-gbps=2", "--pool-bytes", "40M", "--image-bytes", "80M", "--keep-image", "60"], "host": ["--device", "host", "--pool-bytes", "128M"]}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = os.path.dirname(os.environ.get("SY_BINARY", os.path.join(ROOT, "build/switchyard")))
    parser.add_argument("--build", default=build, help="folder of the program (%(default)s)")
    parser.add_argument("--out", help="folder of the report (BUILD/torture)")
    parser.add_argument("--seconds", type=float, default=120, help="of load, over all rounds (%(default)s)")
    parser.add_argument("--hours", type=float, help="in the place of --seconds")
    parser.add_argument("--deaths", type=int, default=0, help="kill so many workers in one life of a runtime, and end then")
    parser.add_argument("--most-seconds", type=float, default=float("inf"), help="with --deaths: end after so long, with as many as there were")
    parser.add_argument("--seed", type=int, help="of the faults and the load; printed, so that a run can be repeated")
    parser.add_argument("--clients", type=int, default=1, help="threads for each interface (%(default)s)")
    parser.add_argument("--interface", choices=[kind.name for kind in clients.INTERFACES], action="append", help="only this interface; default: all")
    parser.add_argument("--workers", type=int, default=6, help="of the server (%(default)s)")
    parser.add_argument("--serve", metavar="OPTIONS", help="one round, `own`, with these options of `switchyard serve`")
    parser.add_argument("--round", choices=list(ROUNDS), action="append", help="only this round; default: all, one after the other")
    parser.add_argument("--recovery", action="store_true", help="measure recovery alone, without load beside it: report-recovery.json")
    parser.add_argument("--recoveries", type=int, default=60, help="with --recovery: deaths of workers; a fifth as many of the runtime (%(default)s)")
    parser.add_argument("--busy", type=int, default=0, help="with --recovery: processes that compute beside it (%(default)s)")
    parser.add_argument("--connections", type=int, default=0, help="open so many at once, and measure what they cost: report-connections.json")
    parser.add_argument("--asks", type=int, default=3000, help="with --connections: requests of the client beside them (%(default)s)")
    parser.add_argument("--short", action="store_true", help="a short form: 12 s of one round, shorter jobs")
    o = parser.parse_args()
    o.seconds = o.hours * 3600 if o.hours else 12 if o.short else o.seconds
    o.seed = o.seed if o.seed is not None else random.SystemRandom().randrange(1 << 31)
    o.out = o.out or f"{o.build}/torture"
    if o.serve is not None:
        ROUNDS["own"], o.round = shlex.split(o.serve), ["own"]
    o.rounds = o.round or (["emulated"] if o.short or o.deaths else list(ROUNDS))
    return o


class Samples:
    """Memory, descriptors, answers over time, of one server."""

    def __init__(self, server, tally):
        self.server, self.tally, self.begun, self.rows = server, tally, time.monotonic(), []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stopping.wait(0.5):
            held = server_of.held_by(self.server.pid)
            workers = [h for h in map(server_of.held_by, self.server.worker_pids()) if h]
            if held:
                self.rows.append((time.monotonic() - self.begun, self.server.pid, held[0], held[1], sum(w[0] for w in workers), self.tally.n_ok))

    def stop(self):
        self.stopping.set()
        self.thread.join()

    def growth(self, column):
        """Of the runtime that lived longest: the mean of its last quarter less the mean of its second quarter."""
        lives = {}
        for row in self.rows:
            lives.setdefault(row[1], []).append(row[column])
        life = max(lives.values(), key=len, default=[])
        quarter = len(life) // 4
        if quarter < 4:
            return 0, len(life)
        return sum(life[-quarter:]) / quarter - sum(life[quarter:2 * quarter]) / quarter, len(life)

    def line(self, value):
        return [(row[0], value(row)) for row in self.rows]

    def rate(self):
        return [(b[0], max(0.0, (b[5] - a[5]) / (b[0] - a[0]))) for a, b in zip(self.rows, self.rows[4:])]


class Round:
    """One server, its load and its faults."""

    def __init__(self, o, name, folder):
        self.o, self.name = o, name
        self.snapshots = f"{folder}/snapshots"
        os.makedirs(self.snapshots)
        self.server = server_of.Server(o.build, folder, [
            "--models", server_of.make_models(o.build), "--workers", o.workers, "--hang-timeout", HANG_SECONDS, "--state", f"{folder}/state", *ROUNDS[name]])
        self.models = jobs.make_job_models(o.build)
        self.tally = clients.Tally()
        self.faults = faults.Faults(self.server, self.tally, o.seed, HANG_SECONDS)
        self.troubles = []

    def run(self, seconds):
        if not self.server.start():
            raise SystemExit(f"the server does not start:\n{self.server.words()[-3000:]}")
        try:
            questions = server_of.ask_idle(self.server, self.o.seed)
            alone = jobs.train_alone(self.server, self.models, self.snapshots)
            with self.server.client() as client:
                client.policy(train_share=0.3)
            self.trainer = jobs.Trainer(self.server, self.models, self.snapshots, alone, self.name)
            askers = [clients.Asker(kind, self.server, questions, self.tally, self.o.seed + 100 * n + k, pause=0.002)
                      for k, kind in enumerate(clients.INTERFACES) if kind.name in (self.o.interface or [kind.name]) for n in range(self.o.clients)]
            self.hostile = hostile.Hostile(self.server, questions, self.tally, self.o.seed)
            self.descriptors_before = server_of.held_by(self.server.pid)[1]
            self.samples = Samples(self.server, self.tally)
            self.begun = time.monotonic()
            self.torture(seconds)
            self.load_seconds = time.monotonic() - self.begun
            self.settle(askers)
        finally:
            self.faults.close()
            self.server.end(signal.SIGKILL)

    def torture(self, seconds):
        deaths, end, last = 0, self.begun + seconds, time.monotonic()
        most = self.begun + self.o.most_seconds
        while deaths < self.o.deaths and time.monotonic() < most if self.o.deaths else time.monotonic() < end:
            if self.server.process.poll() is not None:
                raise SystemExit(f"the runtime has ended by itself, with {self.server.process.returncode}:\n{self.server.words()[-3000:]}")
            if self.o.deaths:
                if self.faults.hit_worker("worker killed"):
                    deaths, last = deaths + 1, time.monotonic()
                elif time.monotonic() > last + STUCK_SECONDS:
                    raise SystemExit(f"no worker could be killed for {STUCK_SECONDS} s after {deaths} deaths, the last one tried: {self.faults.last}\n{self.server.words()[-3000:]}")
                time.sleep(0.01)
            else:
                self.faults.one()
                time.sleep(self.faults.dice.uniform(0.05, 0.4))

    def settle(self, askers):
        """Load and jobs end without faults; then the server drains."""
        self.hostile.stop()
        for asker in askers:
            asker.stop()
        for asker in askers:
            if not asker.join():
                self.troubles.append(f"a client of {asker.kind.name} still waits for its answer")
        if not self.trainer.finish(180):
            self.troubles.append(f"jobs do not end within 180 s without faults: {self.trainer.say()}")
        self.samples.stop()
        self.faults.close()
        self.descriptors_left = self.descriptors_beyond(self.descriptors_before)
        code = self.server.end()
        if code != 0:
            self.troubles.append(f"SIGTERM at the end: exit code {code}")


    def descriptors_beyond(self, before, seconds=10):
        """How many more descriptors the idle runtime holds than before: under load, a flood's connections are its own. What has been closed takes it a moment to notice."""
        end = time.monotonic() + seconds
        while True:
            held = server_of.held_by(self.server.pid)
            beyond = held[1] - before if held else 0
            if beyond <= DESCRIPTORS_BEYOND or time.monotonic() > end:
                return beyond
            time.sleep(0.2)


def recoveries(rnd):
    """Seconds from the death of a worker that computed a request to the next answer of anybody, where another one stood by idle and where none did; and to the
    answer of a request that ran again."""
    answers, reruns, ready, unready, agains = sorted(rnd.tally.answered_at), sorted(rnd.tally.reruns), [], [], []
    faults, stops = sorted(rnd.faults.injected_at) + [float("inf")], rnd.faults.stopped_at
    for at, standby, whose in rnd.faults.computing_deaths:
        until = faults[bisect.bisect_right(faults, at)]  # TO5
        if any(at - HANG_SECONDS - 0.5 < stop < at for stop in stops):
            continue
        for times, out in ((answers, ready if standby else unready), (reruns, agains)):
            k = bisect.bisect_right(times, at)
            if k < len(times) and times[k] < until:
                out.append((times[k] - at, at, whose))
    return ready, unready, agains


def slowest(what, taken, n=5):
    """Lines that say when, by the wall clock, so that one finds them in the server's log. taken: (seconds, when it began, what)."""
    wall, lines = time.time() - time.monotonic(), []
    for took, at, whose in sorted(taken, reverse=True)[:n]:
        seconds, part = divmod(at + wall, 1)
        lines.append(f"{what}: {1e3 * took:.1f} ms from {time.strftime('%H:%M:%S', time.gmtime(seconds))}.{int(part * 1000):03d}, {whose}")
    return lines


def gather(o, rounds):
    told = {"seed": o.seed, "commit": commit(), "faults": {}, "states": {}, "refused": {}, "wrong": [], "lost": [], "troubles": [], "answers": {}}
    ready, unready, agains, back, rows = [], [], [], [], []
    for rnd in rounds:
        for whole, part in ((told["faults"], rnd.faults.by_kind), (told["faults"], rnd.hostile.by_kind), (told["states"], rnd.faults.by_state), (told["refused"], rnd.tally.refused), (told["answers"], rnd.tally.ok)):
            for key, n in part.items():
                whole[key] = whole.get(key, 0) + n
        told["wrong"] += rnd.tally.wrong
        told["lost"] += rnd.tally.lost
        told["troubles"] += rnd.troubles + rnd.hostile.troubles + rnd.faults.exits + [f"job failed: {t}" for t in rnd.trainer.failed] + [f"weights differ: {t}" for t in rnd.trainer.different] + [
            f"job lost: {t}" for t in rnd.trainer.lost]
        with_one, with_none, again = recoveries(rnd)
        ready, unready, agains, back = ready + with_one, unready + with_none, agains + again, back + rnd.faults.runtime_back
    told["slowest"] = slowest("a standby ready", ready) + slowest("no standby", unready) + slowest("own request", agains) + slowest("runtime", back)
    ready, unready, agains, back = ([took for took, _, _ in taken] for taken in (ready, unready, agains, back))
    n_ok, n_jobs = sum(told["answers"].values()), sum(r.trainer.same + len(r.trainer.different) for r in rounds)
    seconds = sum(r.load_seconds for r in rounds)
    told["seconds"] = seconds
    told["servers"] = {r.name: " ".join(r.server.arguments) for r in rounds}
    rows = [report.row("answers with other bits than an idle system's", len(told["wrong"]), "==", 0, n_ok),
            report.row("requests lost", len(told["lost"]), "==", 0, n_ok),
            report.row("requests refused, share", sum(told["refused"].values()) / max(n_ok, 1), "<=", 0.01, n_ok),
            report.row("jobs whose weights differ from those of a run alone", sum(len(r.trainer.different) for r in rounds), "==", 0, n_jobs),
            report.row("jobs compared", n_jobs, ">=", 1, n_jobs),
            report.row("jobs failed or lost", sum(len(r.trainer.failed) + len(r.trainer.lost) for r in rounds), "==", 0, n_jobs),
            report.row("other troubles", len(told["troubles"]), "==", 0, sum(told["faults"].values())),
            report.row("load held: answers a second", n_ok / seconds, ">=", 1, n_ok)]
    for rnd in rounds:
        for what, column, bar in (("memory of the runtime, growth in MB", 2, 16), ("memory of all workers, growth in MB", 4, 64)):
            growth, n = rnd.samples.growth(column)
            rows.append(report.row(f"{rnd.name}: {what}", growth / 1e6, "<=", bar, n))
        rows.append(report.row(f"{rnd.name}: descriptors of the idle runtime, after less before", rnd.descriptors_left, "<=", DESCRIPTORS_BEYOND, 1))
    for what, values, bar in (("worker death to the next answer, ms, a standby ready", ready, 50), ("worker death to the next answer, ms, all others starting or at work", unready, 500), ("worker death to its own request's answer, ms", agains, 200)):
        if values:
            rows += [report.row(f"{what}, {name}", 1e3 * report.quantile(values, q), "<=", bar, len(values)) for name, q in (("p50", 0.5), ("p99", 0.99))]
    if o.deaths:
        rows.append(report.row("deaths of workers in one life of a runtime", told["faults"].get("worker killed", 0), ">=", o.deaths, 1))
    if o.short:  # TO4; its deaths lie closer together than a share or a rate could mean anything
        rows = [r for r in rows if not r["what"].startswith(("worker death", "requests refused", "load held"))]
    elif back:
        rows += [report.row(f"runtime death to ready, s, {name}", report.quantile(back, q), "<=", 1, len(back)) for name, q in (("p50", 0.5), ("p99", 0.99))]
    told["rows"] = rows
    return told


def pictures(rounds):
    out = []
    for r in rounds:
        down = [at - r.samples.begun for at, _ in r.tally.down]
        out.append(report.curve(f"{r.name}: answers a second (ticks: the runtime was taken away)", "/s", {"answers": r.samples.rate()}, down))
        out.append(report.curve(f"{r.name}: memory that the processes alone hold", "MB", {"runtime": r.samples.line(lambda x: x[2] / 1e6), "workers": r.samples.line(lambda x: x[4] / 1e6)}, down))
        out.append(report.curve(f"{r.name}: descriptors of the runtime", "", {"descriptors": r.samples.line(lambda x: x[3])}, down))
    return out


def commit():
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def measure_alone(o, name, measure):
    """Beside nothing else, as its bars are meant."""
    os.makedirs(o.out, exist_ok=True)
    rows = measure(o)
    with open(f"{o.out}/report-{name}.json", "w", encoding="utf-8") as out:
        json.dump({"rows": rows, "commit": commit()}, out, indent=1)
    for r in rows:
        print(f"  {'holds ' if report.holds(r) else 'MISSED'} {r['what']}: {r['value']:.4g} ({r['op']} {r['bar']:.4g}, n = {r['n']})")
    return 0


def main():
    o, rounds = options(), []
    if o.recovery:
        return measure_alone(o, "recovery", recovery.measure)
    if o.connections:
        return measure_alone(o, "connections", connections.measure)
    if o.short:
        jobs.STEPS = 20
    print(f"torture: seed {o.seed}, {o.deaths or o.seconds:g} {'deaths' if o.deaths else 's'}, rounds {', '.join(o.rounds)}", flush=True)
    for name in o.rounds:
        folder = tempfile.mkdtemp(prefix="switchyard-torture-")
        try:
            rounds.append(Round(o, name, folder))
            rounds[-1].run(o.seconds / len(o.rounds))
        finally:
            os.makedirs(o.out, exist_ok=True)
            if os.path.exists(f"{folder}/log"):
                shutil.copy(f"{folder}/log", f"{o.out}/log-{name}")
            shutil.rmtree(folder, ignore_errors=True)
    told = gather(o, rounds)
    report.write(o.out, told, pictures(rounds))
    held = report.show(told, o.out)
    print("[       OK ] torture" if held else "[  FAILED  ] torture")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
