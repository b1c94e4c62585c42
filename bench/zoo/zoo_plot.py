"""A scatter plot of the zoo, as SVG: ONNX Runtime's time across, ours / ONNX Runtime's up, both logarithmic."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860, 480, 60, 40, 20, 50
COLOURS = {"look": "#4477aa", "held": "#228833", "detector": "#ee6677", "int8": "#aa3377"}
LOW, HIGH = 0.25, 4.0


def group(record):
    return record["kind"] or record["half"]


def points(records):
    return [(theirs, ours / theirs, group(r), f"{name}, batch {batch}: {ours:.3g} / {theirs:.3g} ms") for name, r in records.items()
            for batch, ours, theirs in zip(r["batches"], r.get("ours_ms", []), r.get("ort_ms", []))]


def scale(value, low, high, start, end):
    value = min(max(value, low), high)
    return start + (end - start) * math.log(value / low) / math.log(high / low)


def text(x, y, words, anchor="middle"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12" font-family="sans-serif">{escape(words)}</text>'


def line(x1, y1, x2, y2, colour="#ddd"):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def svg(records):
    found = points(records)
    least, most = (min((p[0] for p in found), default=0.01), max((p[0] for p in found), default=100))
    x = lambda v: scale(v, least, most * 1.01, LEFT, WIDTH - RIGHT)  # noqa: E731
    y = lambda v: scale(v, LOW, HIGH, HEIGHT - BOTTOM, TOP)  # noqa: E731
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for v in (0.25, 0.5, 1, 1.2, 2, 4):
        parts += [line(LEFT, y(v), WIDTH - RIGHT, y(v), "#888" if v == 1 else "#ddd"), text(LEFT - 8, y(v) + 4, f"{v:g}", "end")]
    for e in range(math.ceil(math.log10(least)), math.floor(math.log10(most)) + 1):
        parts += [line(x(10 ** e), TOP, x(10 ** e), HEIGHT - BOTTOM), text(x(10 ** e), HEIGHT - BOTTOM + 18, f"{10 ** e:g}")]
    for at, ratio, kind, words in found:
        parts.append(f'<circle cx="{x(at):.1f}" cy="{y(ratio):.1f}" r="4" fill="{COLOURS[kind]}" fill-opacity="0.75"><title>{escape(words)}</title></circle>')
    for k, (kind, colour) in enumerate(COLOURS.items()):
        parts += [f'<circle cx="{LEFT + 110 * k + 10}" cy="18" r="4" fill="{colour}"/>', text(LEFT + 110 * k + 20, 22, kind, "start")]
    parts += [text(WIDTH / 2, HEIGHT - 10, "ONNX Runtime, ms"), text(WIDTH - RIGHT, 22, "up: ours / ONNX Runtime", "end"), "</svg>"]
    return "\n".join(parts) + "\n"
