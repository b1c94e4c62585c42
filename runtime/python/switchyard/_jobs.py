"""Training jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Optional, Union

from .errors import JobFailed, NoAnswer, NotFound

_ENDED = ("ended", "failed")


class Jobs:
    """`client.jobs`. A job is named by its number."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def list(self) -> list[dict[str, Any]]:
        """Each job's row of the status: job, name, state, step, total_steps, loss, accuracy, steps_per_s ..."""
        return list(self._call("status", {})["jobs"])

    def get(self, job: int) -> dict[str, Any]:
        for row in self.list():
            if row["job"] == job:
                return row
        raise NotFound(f"there is no job {job}; one that ended long ago is not listed any more")

    def submit(self, job: Union[str, Mapping[str, Any]], timeout: float = 600.0) -> int:
        """A job file's text, or what it holds; paths are absolute, and the server's. Returns the job's number once it was admitted."""
        text = job if isinstance(job, str) else json.dumps(job)
        return int(self._call("train", {"text": text}, timeout)["job"])

    def pause(self, job: int) -> None:
        """It keeps its memory."""
        self._call("job_pause", {"job": job})

    def resume(self, job: int) -> None:
        self._call("job_resume", {"job": job})

    def priority(self, job: int, priority: int) -> None:
        """-1000, the most urgent, to 1000; counts under the policy "priority"."""
        self._call("job_priority", {"job": job, "priority": priority})

    def stop(self, job: int, *, evaluate: bool = False, timeout: float = 600.0) -> None:
        """Ends it after the iteration that it is in; returns once its snapshot is written. evaluate: on the test set first."""
        self._call("train_stop", {"job": job, "evaluate": evaluate}, timeout)

    cancel = stop

    def wait(self, job: int, progress: Optional[Callable[[dict[str, Any]], object]] = None, *, timeout: Optional[float] = None,
             every: float = 0.5) -> dict[str, Any]:
        """Its last row, once it has ended. progress is called with its row every so many seconds. JobFailed: it ended with an error;
        NoAnswer: it still runs after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            row = self.get(job)
            if progress is not None:
                progress(row)
            if row["state"] in _ENDED:
                break
            if deadline is not None and time.monotonic() >= deadline:
                raise NoAnswer(f"job {job} is {row['state']} at step {row.get('step')} after {timeout:g} s")
            time.sleep(every if deadline is None else max(0.0, min(every, deadline - time.monotonic())))
        if row["state"] == "failed":
            raise JobFailed(f"job {job} failed: {row.get('error')}", row)
        return row
