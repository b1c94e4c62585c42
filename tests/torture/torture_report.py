"""The report: report.json with the rows that are held, report.html with them and with pictures over time."""
import html
import json
import os

HOLDS = {"<=": lambda value, bar: value <= bar, ">=": lambda value, bar: value >= bar, "==": lambda value, bar: value == bar}
STYLE = ("body{font:15px system-ui;margin:2em auto;max-width:60em;color:#223}table{border-collapse:collapse;margin:1em 0}"
         "td,th{padding:.25em .8em;border-bottom:1px solid #ccd;text-align:left}td.n{text-align:right}.miss{color:#b00;font-weight:bold}svg{background:#f7f8fb}")


def quantile(values, q):
    values = sorted(values)
    return values[min(int(q * len(values)), len(values) - 1)] if values else None


def row(what, value, op, bar, n, **more):
    return {"what": what, "value": value, "op": op, "bar": bar, "n": n, **more}


def holds(r):
    return r["value"] is not None and HOLDS[r["op"]](r["value"], r["bar"])


def curve(title, unit, series, marks=(), width=860, height=170):
    """An SVG of lines over seconds. series: {name: [(seconds, value)]}; marks: seconds of faults that are drawn as ticks."""
    points = [p for line in series.values() for p in line]
    if not points:
        return ""
    last, top = max(p[0] for p in points) or 1, max(p[1] for p in points) or 1
    colours = ["#2458c5", "#c2410c", "#15803d", "#7e22ce"]
    out = [f'<h3>{html.escape(title)}</h3><svg width="{width}" height="{height}" role="img">']
    for at in marks:
        x = 50 + at / last * (width - 60)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{height - 28}" y2="{height - 20}" stroke="#b00" stroke-opacity=".5"/>')
    for (name, line), colour in zip(series.items(), colours):
        path = " ".join(f"{50 + t / last * (width - 60):.1f},{height - 30 - v / top * (height - 50):.1f}" for t, v in line)
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{path}"/>')
        out.append(f'<text x="{60 + 200 * list(series).index(name)}" y="13" font-size="12" fill="{colour}">{html.escape(name)}</text>')
    out.append(f'<text x="2" y="24" font-size="11">{top:.4g} {unit}</text><text x="2" y="{height - 30}" font-size="11">0</text>'
               f'<text x="{width - 60}" y="{height - 6}" font-size="11">{last:.0f} s</text></svg>')
    return "".join(out)


def table(head, lines):
    cells = "".join(f"<th>{html.escape(str(c))}</th>" for c in head)
    return f"<table><tr>{cells}</tr>" + "".join("<tr>" + "".join(line) + "</tr>" for line in lines) + "</table>"


def cell(value, kind=""):
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f'<td class="{kind}">{html.escape(shown)}</td>'


def write(folder, told, pictures):
    """told: {"rows", "faults", "states", "refused", "wrong", ...}, all that JSON can hold."""
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/report.json", "w", encoding="utf-8") as out:
        json.dump(told, out, indent=1, default=str)
    lines = [[cell(r["what"]), cell(r["op"] + " " + str(r["bar"]), "n"), cell(r["value"], "n" if holds(r) else "n miss"), cell(r["n"], "n")] for r in told["rows"]]
    parts = [f"<!doctype html><meta charset=utf-8><title>Torture</title><style>{STYLE}</style><h1>Torture</h1><p>seed {told['seed']}, {told['seconds']:.0f} s, "
             f"commit {html.escape(told['commit'])}; {sum(map(holds, told['rows']))} of {len(told['rows'])} rows hold</p>",
             table(["what", "bar", "measured", "n"], lines),
             table(["round", "options of its server"], [[cell(k), cell(v)] for k, v in told["servers"].items()]), *pictures,
             table(["interface", "answers"], [[cell(k), cell(v, "n")] for k, v in sorted(told["answers"].items())]),
             table(["fault", "times"], [[cell(k), cell(v, "n")] for k, v in sorted(told["faults"].items())]),
             table(["state of the worker that was hit", "times"], [[cell(k), cell(v, "n")] for k, v in sorted(told["states"].items())]),
             table(["refused, in words", "times"], [[cell(k), cell(v, "n")] for k, v in sorted(told["refused"].items())])]
    for what in ("wrong", "lost", "troubles", "slowest"):
        if told[what]:
            parts.append(table([what], [[cell(text)] for text in told[what][:50]]))
    with open(f"{folder}/report.html", "w", encoding="utf-8") as out:
        out.write("\n".join(parts))


def show(told, folder):
    for r in told["rows"]:
        value = f"{r['value']:.4g}" if isinstance(r["value"], float) else r["value"]
        print(f"  {'holds ' if holds(r) else 'MISSED'} {r['what']}: {value} ({r['op']} {r['bar']}, n = {r['n']})")
    for what in ("wrong", "lost", "troubles"):
        for text in told[what][:10]:
            print(f"  {what}: {text}")
    print(f"  {folder}/report.html, {folder}/report.json", flush=True)
    return all(map(holds, told["rows"]))
