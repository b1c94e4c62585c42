"""What workers say, for fuzz_worker: of the run and the job that there are, in an order that goes on. A message is: from whom, which, a value for each field."""

HELLO, READY, MODEL_ADDED, PREPARED, RUN_DONE, JOB_PREPARED, JOB_STARTED, JOB_PAUSED, JOB_SNAPSHOT, JOB_ENDED, JOB_TURN_OVER, JOB_SPILLED, JOB_RETURNED, JOB_LEFT = range(14)


def worker():
    for job in (1, 2):
        for who in range(3):
            for messages in ([(JOB_TURN_OVER, job, 3, 5)], [(JOB_PAUSED, job, 1, 5), (JOB_SPILLED, job, 0, 0, 64), (JOB_RETURNED, job, 64)], [(JOB_LEFT, job, 4, 0)], [(JOB_LEFT, job, 4, 5)],
                             [(JOB_ENDED, job, 0, 0, 5)], [(JOB_ENDED, job, 5, 3, 5)], [(JOB_PREPARED, job, 5, 3, 1, 1, 1)], [(JOB_PAUSED, job, 1, 5), (JOB_LEFT, job, 4, 0)],
                             [(JOB_SNAPSHOT, job, 2, 3)], [(JOB_SPILLED, job, 5, 3, 0)]):
                yield b"".join(bytes([who]) + bytes(m) for m in messages)
    # A run that is over, or stopped before a layer, with the times of its groups.
    for run in (1, 2, 3):
        for who in range(3):
            for status, layer, spans in ((0, 0, [1, 2, 3, 4]), (0, 0, [0, 0, 3, 4]), (0, 0, [1] * 8), (0, 0, [1] * 24), (0, 190, []), (14, 1, [1, 2, 3, 4]), (15, 1, [1, 2, 3, 4]), (16, 1, [])):
                yield bytes([who, RUN_DONE, run, status, 0, 1, 2, 9, 1, 5, 1, layer, len(spans)] + spans)
