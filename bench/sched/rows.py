#!/usr/bin/env python3
"""Measures rows of the scheduler's table on real servers of this build: prints each with its bar, and writes build/bench/sched-ROW.json.

    python3 bench/sched/rows.py fair --seconds 20
    python3 bench/sched/rows.py deadlines --help

Each takes at most three minutes as it stands, on a machine that does nothing else; --quick is a look whether it works.
"""
import argparse
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import row_deadlines  # noqa: E402
import row_jobs  # noqa: E402
import row_packing  # noqa: E402
import row_residency  # noqa: E402
import row_share  # noqa: E402

# Each row's words, options, what runs it, and what makes it short.
ROWS = {
    "residency": ("pool of half the models: heads against whole models", row_residency.arguments, row_residency.run, {"requests": 20, "arrivals": 20, "rounds": 1}),
    "switch": ("from one resident job to another", row_jobs.switch_arguments, row_jobs.switch, {"seconds": 1, "rounds": 2}),
    "beside": ("a guaranteed job beside an opportunistic one", row_jobs.beside_arguments, row_jobs.beside, {"seconds": 0.5, "rounds": 4}),
    "fair": ("equal and weighted shares of unequal jobs", row_jobs.fair_arguments, row_jobs.fair, {"seconds": 8, "counts": [3]}),
    "deadlines": ("mixed deadlines at 80 percent load: promises, refusals, predictions", row_deadlines.arguments, row_deadlines.run, {"requests": 200}),
    "share": ("training's share under a flood, requests' share under training", row_share.arguments, row_share.run, {"seconds": 2, "rounds": 1}),
    "packing": ("Salus' 42 models on one device", row_packing.arguments, row_packing.run, {"rounds": 1, "requests": 1, "gap_ms": 5}),
}


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers are stopped on the way out
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="folder of switchyard and make-models")
    parser.add_argument("--quick", action="store_true", help="so short that it says nothing")
    parsers = parser.add_subparsers(dest="row", required=True, metavar="ROW")
    parsers.add_parser("all", help="all of them, one after the other")
    for name, (words, arguments, _, _) in ROWS.items():
        arguments(parsers.add_parser(name, help=words))
    options = parser.parse_args()
    chosen = ROWS if options.row == "all" else [options.row]
    for name in chosen:
        _, _, run, quick = ROWS[name]
        own = options if options.row == name else parser.parse_args(["--build", options.build, name])
        for key, value in (quick if options.quick else {}).items():
            setattr(own, key, value)
        begun = time.monotonic()
        print(f"{name}: load average {os.getloadavg()[0]:.1f}", flush=True)
        run(own)
        print(f"  {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
