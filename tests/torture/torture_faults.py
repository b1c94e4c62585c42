"""Faults that come from outside the server's code: signals to workers in a chosen state, and to the runtime; cold caches."""
import os
import random
import signal
import time

from torture_server import switchyard

# A request that killed three workers is refused by rule, and so ends a job whose worker dies three times without a step: the harness does neither.
WORKER_SIGNALS = {"worker killed": signal.SIGKILL, "worker segfault": signal.SIGSEGV, "worker abort": signal.SIGABRT, "worker stopped": signal.SIGSTOP}
COMPUTING = ("running", "loaded")
# A worker that dies ten times in a row before it has its models is given up by rule: the harness kills none so more than three times.
STARTING, MOST_EARLY = ("spawned", "configuring", "loading_models"), 3
RECOVERY_SECONDS = 60


class Faults:
    """Injects faults into one server; counts them by kind, and by state of the worker that was hit."""

    def __init__(self, server, tally, seed, hang_seconds):
        self.server, self.tally, self.dice, self.hang_seconds = server, tally, random.Random(seed), hang_seconds
        self.by_kind, self.by_state, self.runtime_back, self.exits = {}, {}, [], []
        self.killed_requests, self.steps_at_kill, self.computing_deaths = set(), {}, []
        self.injected_at, self.stopped_at = [], []  # every fault; those that leave a worker hanging, which the heartbeat finds
        self.client, self.dead, self.n_early, self.last = None, set(), {}, None

    def count(self, kind, state=None):
        self.injected_at.append(time.monotonic())
        self.by_kind[kind] = self.by_kind.get(kind, 0) + 1
        if state:
            self.by_state[state] = self.by_state.get(state, 0) + 1

    def status(self):
        try:
            self.client = self.client or self.server.client(30)
            status = self.client.status()
            self.dead &= {w["pid"] for w in status["workers"]}  # the kernel gives numbers out again
            return status
        except (OSError, switchyard.SwitchyardError):
            self.close()
            return None

    def close(self):
        if self.client:
            self.client.close()
        self.client = None

    # ---- workers ----

    def hit_worker(self, kind, state=None):
        """Hits one worker, in that state if one is named. False: none was there that may be hit."""
        status = self.status()
        if not status:
            self.last = "the server tells no status"
            return False
        there = [w for w in status["workers"] if w["pid"] and w["pid"] not in self.dead and w["state"] not in ("dead", "killed", "stopping") and (state is None or w["state"] == state)]
        if state is None and there:
            state = self.dice.choice(sorted({w["state"] for w in there}))
            there = [w for w in there if w["state"] == state]
        if not there:
            self.last = [(w["worker"], w["pid"], w["state"], w["pid"] in self.dead) for w in status["workers"]]
            return False
        return self.hit(kind, self.dice.choice(there)["pid"])

    def hit(self, kind, pid):
        """It is stopped first, so that what it does is known when it is hit."""
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            return False
        status = self.status()
        worker = next((w for w in status["workers"] if w["pid"] == pid), None) if status else None
        self.last = worker
        if worker is None or not self.may_die(worker, status):
            self.wake(pid)
            return False
        if worker["request"]:
            self.killed_requests.add(worker["request"])
        self.count(kind, worker["state"])
        if WORKER_SIGNALS[kind] == signal.SIGSTOP:
            self.stopped_at.append(time.monotonic())
        if worker["state"] in COMPUTING and worker["request"] and WORKER_SIGNALS[kind] != signal.SIGSTOP:
            ready = any(w["state"] == "idle" and w["pid"] not in self.dead for w in status["workers"])
            self.computing_deaths.append((time.monotonic(), ready, f"worker {worker['worker']}, pid {pid}, {worker['state']}, request {worker['request']}"))
        self.n_early[worker["worker"]] = self.n_early.get(worker["worker"], 0) + 1 if worker["state"] in STARTING else 0
        self.dead.add(pid)  # until it is reaped the status still names it: no death is counted twice
        if WORKER_SIGNALS[kind] != signal.SIGSTOP:
            os.kill(pid, WORKER_SIGNALS[kind])
            self.wake(pid)
        return True

    @staticmethod
    def wake(pid):
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def may_die(self, worker, status):
        if worker["request"] and worker["request"] in self.killed_requests:
            return False
        if worker["state"] in STARTING and self.n_early.get(worker["worker"], 0) >= MOST_EARLY:
            return False
        if worker["job"]:
            step = next((job["step"] for job in status["jobs"] if job["job"] == worker["job"]), 0)
            if self.steps_at_kill.get(worker["job"]) == step:
                return False
            self.steps_at_kill[worker["job"]] = step
        return True

    # ---- the runtime ----

    def restart(self, kind, number, code):
        """Ends the runtime and starts it again; how long it was away, as a client sees it."""
        self.close()
        self.count(kind)
        self.tally.goes_down()
        begun = time.monotonic()
        ended = self.server.end(number)
        if ended != code:
            self.exits.append(f"{kind}: exit code {ended}, not {code}")
        begun = begun if number == signal.SIGKILL else time.monotonic()
        if not self.server.start():
            raise SystemExit(f"the server does not start again after '{kind}':\n{self.server.words()[-3000:]}")
        self.tally.comes_up()
        self.runtime_back.append((time.monotonic() - begun, begun, kind))
        self.steps_at_kill.clear()
        self.killed_requests.clear()
        self.n_early.clear()

    def runtime_killed(self):
        self.restart("runtime killed", signal.SIGKILL, -signal.SIGKILL)

    def runtime_terminated(self):
        self.restart("runtime terminated", signal.SIGTERM, 0)

    def runtime_terminated_in_trouble(self):
        """SIGTERM while workers die."""
        for kind in ("worker killed", "worker stopped"):
            self.hit_worker(kind)
        self.restart("terminated while workers die", signal.SIGTERM, 0)

    def runtime_stopped(self):
        """To the runtime the clock jumps: everything that was due meanwhile is due at once."""
        self.count("runtime stopped (its clock jumps)")
        os.kill(self.server.pid, signal.SIGSTOP)
        time.sleep(self.hang_seconds * 1.5)
        os.kill(self.server.pid, signal.SIGCONT)

    # ---- memory ----

    def cold(self):
        """All weights leave pool and image: the next requests read from storage."""
        status = self.status()
        self.count("weights evicted")
        for model in status["models"] if status else []:
            try:
                self.client.evict(model["name"], image=True)
            except switchyard.SwitchyardError:
                pass  # it runs

    def one(self, with_runtime=True):
        """A fault at random."""
        roll = self.dice.random()
        if roll < 0.75:
            kinds = list(WORKER_SIGNALS)
            return self.hit_worker(self.dice.choices(kinds, [8, 4, 2, 1])[0])
        if roll < 0.9 or not with_runtime:
            return self.cold()
        return self.dice.choice([self.runtime_killed, self.runtime_killed, self.runtime_terminated, self.runtime_terminated_in_trouble, self.runtime_stopped])()
