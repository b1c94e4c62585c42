#!/usr/bin/env python3
"""Lines of each parser that the fuzz targets reached, from gcov's counts. `make fuzz-coverage` builds, runs and calls it.

usage: coverage.py OBJECTS [--lines PARSER]     --lines: which lines were not reached
       coverage.py --check                      what this file names and the tree does not have, a line each; `make lint` calls it
"""
import glob
import json
import os
import subprocess
import sys

BAR = 90.0
PARSERS = {  # name: its files; fuzz.mk compiles these with --coverage
    "ONNX": "loader/onnx/*.c",
    "package": "loader/package/package.c loader/package/package_meta.c loader/package/file_bytes.c",
    "safetensors": "loader/package/safetensors.c",
    "npy": "workers/data/npy.c",
    "IDX": "workers/data/idx_reader.c",
    "CSV": "workers/data/csv_rows.c workers/data/data_csv.c",
    "text": "workers/data/data_text.c",
    "images": "workers/data/image_reader.c workers/data/image_reader_resize.c",
    "job file": "workers/job/*.c",
    "config.pbtxt": "runtime/repository/pbtxt*.c runtime/repository/model_config.c runtime/repository/config_*.c",
    "msgpack-RPC": "runtime/front/rpc/rpc_connection.c runtime/front/rpc/rpc_infer*.c runtime/front/rpc/rpc_params.c",
    # http_infer_build.c writes answers.
    "HTTP": "runtime/front/http/http_parse.c runtime/front/http/http_body.c runtime/front/http/http_connection.c "
            "runtime/front/http/http_infer.c runtime/front/http/http_infer_read.c",
    # What TLS adds lies in runtime/net; grpc_infer_build.c writes answers.
    "gRPC frames": "runtime/front/grpc/grpc_connection.c runtime/front/grpc/grpc_session.c runtime/front/grpc/grpc_stream.c "
                   "runtime/front/grpc/grpc_incoming.c runtime/front/grpc/grpc_keep.c runtime/front/grpc/grpc_infer.c runtime/front/grpc/grpc_infer_read.c",
    # grpc_inflate.c only says on which thread a message is inflated; what inflates it is grpc_gzip.c.
    "gRPC messages": "runtime/front/grpc/grpc_infer_message.c runtime/front/grpc/grpc_wire.c runtime/front/grpc/grpc_json.c "
                     "runtime/front/grpc/grpc_gzip.c",
    "tensor JSON": "runtime/front/request/tensor_json*.c",
    "control messages": "runtime/wire/messages.c",
    "what workers say": "runtime/core/core_messages.c runtime/core/jobs/core_job_messages.c",
    "traces, devices": "runtime/sim/sim_csv.c runtime/sim/sim_trace.c",
    "traceparent": "runtime/telemetry/trace_context.c",
    "Accept": "runtime/metrics/exposition_choose.c",
    "job states": "runtime/move/job_state.c",
}

# From this line on a file reads nothing: what the scheduler decided is sent to workers, whatever these said.
WRITES_FROM = {"runtime/core/jobs/core_job_messages.c": "/* ---- the scheduler's decisions, to workers"}


def files_of(parser):
    return sorted(path for pattern in PARSERS[parser].split() for path in glob.glob(pattern))


def first_written(source):
    """The line from which on the file reads nothing; None: the file or the line is not there."""
    if not os.path.exists(source):
        return None
    with open(source, encoding="utf-8") as text:
        return next((number for number, line in enumerate(text, 1) if line.startswith(WRITES_FROM[source])), None)


def check():
    patterns = [pattern for files in PARSERS.values() for pattern in files.split()]
    missing = [f"no file {pattern}" for pattern in patterns if not glob.glob(pattern)]
    missing += [f"no line \"{WRITES_FROM[source]}\" in {source}" for source in WRITES_FROM if first_written(source) is None]
    for what in missing:
        print(f"tests/fuzz/coverage.py:1: {what}")
    return 1 if missing else 0


def lines_of(objects, source):
    """{line: count}; a line in several functions counts where any reached it."""
    data = os.path.join(objects, source[:-2] + ".gcda")
    if not os.path.exists(data):
        return None
    out = subprocess.run(["gcov", "--json-format", "--stdout", data], capture_output=True, text=True, check=True).stdout
    lines = {}
    for record in out.splitlines():
        for f in json.loads(record)["files"]:
            if os.path.normpath(f["file"]) == source:
                for line in f["lines"]:
                    lines[line["line_number"]] = max(lines.get(line["line_number"], 0), line["count"])
    return lines


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--files":
        print(" ".join(sorted({f for p in PARSERS for f in files_of(p)})))
        return 0
    if len(sys.argv) > 1 and sys.argv[1] == "--check":
        return check()
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    objects, shown = sys.argv[1], sys.argv[3:] if sys.argv[2:3] == ["--lines"] else []
    if check():
        return 1
    below, without_memory = [], 0
    for parser in PARSERS:
        reached = total = 0
        for source in files_of(parser):
            lines = lines_of(objects, source)
            if lines is None:
                lines = {}
                print(f"  {source}: no target reaches it")
            with open(source) as file:
                text = [""] + file.read().split("\n")
            if source in WRITES_FROM:
                end = first_written(source)
                lines = {line: n for line, n in lines.items() if line < end}
            without_memory += sum(1 for line, n in lines.items() if not n and "SY_ENOMEM_HOST" in text[line])
            reached += sum(1 for n in lines.values() if n)
            total += len(lines)
            if parser in shown:
                print(f"  {source}: {[line for line, n in sorted(lines.items()) if not n]}")
        percent = 100.0 * reached / total if total else 0.0
        print(f"{parser:18s} {percent:5.1f} % of {total} lines{'' if percent >= BAR else f'   under {BAR:.0f} %'}")
        if percent < BAR:
            below.append(parser)
    print(f"fuzz-coverage: {len(PARSERS) - len(below)} of {len(PARSERS)} parsers reach {BAR:.0f} %"
          + (f"; under it: {', '.join(below)}" if below else ""))
    print(f"counted as not reached: {without_memory} lines that answer a failed allocation, which no input brings about (tests/faults makes allocations fail)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
