#!/usr/bin/env python3
"""Runs salus-100.csv under each policy and draws salus-100.svg: distribution of completion times, and means beside the paper's.

    python3 examples/traces/plot_salus_100.py [--binary build/switchyard]
"""
import argparse
import json
import subprocess

# policy: options, mean completion in Salus' Table 1 (minutes), colour
POLICIES = {
    "fifo": (["--policy", "fifo"], 170.6, "#7f7f7f"),
    "pack": (["--policy", "pack"], 145.5, "#9bbb59"),
    "fair": (["--policy", "fair"], 96.6, "#8064a2"),
    "srtf": (["--policy", "srtf", "--spill"], 53.4, "#c0504d"),
}
LEFT, TOP, WIDTH, HEIGHT, MINUTES = 60, 60, 640, 320, 320


def run(binary, options):
    command = [binary, "simulate", "--jobs", "examples/traces/salus-100.csv", "--json", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def x_of(minutes):
    return LEFT + WIDTH * minutes / MINUTES


def curve(out, quantiles, colour):
    points = " ".join(f"{x_of(s / 60):.1f},{TOP + HEIGHT * (1 - i / (len(quantiles) - 1)):.1f}" for i, s in enumerate(quantiles))
    out.append(f"<polyline fill='none' stroke='{colour}' stroke-width='2' points='{points}'/>")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/switchyard")
    parser.add_argument("--out", default="examples/traces/salus-100.svg")
    arguments = parser.parse_args()
    out = ["<svg xmlns='http://www.w3.org/2000/svg' width='980' height='440' font-family='sans-serif' font-size='12'>",
           "<rect width='100%' height='100%' fill='white'/>",
           f"<text x='{LEFT}' y='24' font-size='14'>100 training jobs on one device of 16 GB (simulated)</text>",
           f"<text x='{LEFT}' y='{TOP - 10}'>jobs done, by completion time</text>",
           f"<rect x='{LEFT}' y='{TOP}' width='{WIDTH}' height='{HEIGHT}' fill='none' stroke='#888'/>"]
    for i in range(5):
        out.append(f"<text x='{LEFT - 6}' y='{TOP + HEIGHT - i * HEIGHT / 4 + 4:.0f}' text-anchor='end'>{25 * i} %</text>")
    for minutes in range(0, MINUTES + 1, 50):
        out.append(f"<text x='{x_of(minutes):.0f}' y='{TOP + HEIGHT + 18}' text-anchor='middle'>{minutes}</text>")
    out.append(f"<text x='{LEFT + WIDTH / 2}' y='{TOP + HEIGHT + 36}' text-anchor='middle'>minutes</text>")
    out.append(f"<text x='{LEFT + WIDTH + 30}' y='{TOP}'>mean, minutes (Salus' Table 1)</text>")
    for row, (name, (options, paper, colour)) in enumerate(POLICIES.items()):
        answer = run(arguments.binary, options)
        mean = answer["jct_s"]["mean"] / 60
        curve(out, answer["jct_s"]["quantiles"], colour)
        y = TOP + 26 + 24 * row
        out.append(f"<text x='{LEFT + WIDTH + 30}' y='{y}' fill='{colour}' font-weight='bold'>{name}</text>"
                   f"<text x='{LEFT + WIDTH + 80}' y='{y}'>{mean:.1f} ({paper}); makespan {answer['makespan_s'] / 60:.1f}</text>")
        print(f"{name}: mean {mean:.1f} minutes (paper {paper}), makespan {answer['makespan_s'] / 60:.1f}")
    with open(arguments.out, "w", encoding="utf-8") as file:
        file.write("\n".join([*out, "</svg>", ""]))


if __name__ == "__main__":
    main()
