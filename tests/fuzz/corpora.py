#!/usr/bin/env python3
"""Corpora of the fuzz targets, and libFuzzer's runs. `make fuzz`, `make fuzz-merge` and the tests call it.

usage: corpora.py unpack TARGET...                 corpus/NAME.zip, corpus/NAME/* and what written.py makes to the folder TARGET.corpus
       corpora.py run SECONDS SEED TARGET...       libFuzzer, from seeds and corpus, for so many seconds of CPU time; inputs that went somewhere new stay in
                                                   TARGET.found
       corpora.py merge TARGET...                  corpus/NAME.zip anew: the fewest inputs that reach what those of all folders reach

TARGET is the path of a built target. Fails after all targets have run, if one did.
"""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

import written

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_BYTES = 100 << 10  # of a corpus as a file; the largest inputs are left out
LEAST_SECONDS_TO_STOP = 60  # of CPU time, after it was told
HANG_SECONDS = 200  # of the wall, for one input: at a low priority beside other work 20 s are less than one of CPU time
IDLE_SECONDS = 120  # without CPU time: it hangs where nothing computes, and libFuzzer's own limit did not see it
LOOK_SECONDS = 0.2


def empty_folder(path):
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def name_of(target):
    return os.path.basename(target)


def unpack(target):
    folder = empty_folder(target + ".corpus")
    packed = f"{HERE}/corpus/{name_of(target)}.zip"
    if os.path.exists(packed):
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(folder)
    for path in glob.glob(f"{HERE}/corpus/{name_of(target)}/*"):
        shutil.copy(path, folder)
    for i, content in enumerate(written.TARGETS.get(name_of(target), lambda: [])()):
        with open(f"{folder}/0-written-{i:03d}", "wb") as file:
            file.write(content)
    return folder


def write_seeds(target):
    folder = empty_folder(target + ".seeds")
    subprocess.run([target, "--write-seeds", folder], check=True)
    return folder


def cpu_seconds(pid):
    """Of a child that has not been waited for, and of its own that it has waited for."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as text:
        fields = text.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def end_after(child, seconds):
    """Lets it compute for `seconds` of CPU time: on a machine that has other work, or at a low priority, seconds of the wall would be spent before all seeds are read.
    None, or why it was killed."""
    told, used, idle = False, 0.0, 0.0
    while child.poll() is None:
        time.sleep(LOOK_SECONDS)
        now = cpu_seconds(child.pid)
        idle = 0.0 if now > used else idle + LOOK_SECONDS  # not by the clock, which goes on while both are stopped (SIGSTOP)
        used = now
        if used > seconds and not told:
            child.send_signal(signal.SIGUSR1)  # it ends after the input, with its figures
            told = True
        why = f"still runs {LEAST_SECONDS_TO_STOP} s after the {seconds} s that it was given" if used > seconds + LEAST_SECONDS_TO_STOP else None
        why = f"has not computed for {IDLE_SECONDS} s" if idle > IDLE_SECONDS else why
        if why:
            child.kill()
            child.wait()
            return why
    return None


def libfuzzer(target, arguments, seconds):
    """Its output, None if it failed: then the output has been printed."""
    words = f"{HERE}/dictionaries/{name_of(target)}.dict"
    # Names of new functions would take a process and its reading of 60 MB each.
    command = [target, f"-artifact_prefix={target}-", "-print_final_stats=1", "-print_funcs=0", f"-timeout={HANG_SECONDS}"] + ([f"-dict={words}"] if os.path.exists(words) else [])
    with tempfile.TemporaryFile("w+", errors="replace") as said, subprocess.Popen(command + arguments, stdout=subprocess.DEVNULL, stderr=said) as child:
        why = end_after(child, seconds)
        said.seek(0)
        text = said.read()
    if why is None and child.returncode != 0:
        why = f"replay: {target} and the file named above"
    if why:
        print(f"{text[-8000:]}\n[  FAILED  ] {name_of(target)}: {why}", flush=True)
    return None if why else text


def run(target, seconds, seed):
    os.makedirs(target + ".found", exist_ok=True)
    said = libfuzzer(target, [f"-seed={seed}", target + ".found", write_seeds(target), unpack(target)], seconds)
    if said is None:
        return False
    inputs = re.search(r"stat::number_of_executed_units:\s*(\d+)", said).group(1)
    reached = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", said)[-1]
    print(f"[       OK ] {name_of(target)}: seed {seed}, {inputs} inputs, {reached[0]} blocks, {reached[1]} features, {reached[2]} inputs kept", flush=True)
    return True


def pack(name, folder, leave_out):
    """The smallest inputs first, until the file would be too large; with the same inputs it is the same file."""
    paths = [p for p in glob.glob(f"{folder}/*") if os.path.basename(p) not in leave_out]
    os.makedirs(f"{HERE}/corpus", exist_ok=True)
    packed, n = f"{HERE}/corpus/{name}.zip", 0
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(paths, key=lambda p: (os.path.getsize(p), p)):
            if archive.fp.tell() + 100 * n > MOST_BYTES:
                break
            entry = zipfile.ZipInfo(os.path.basename(path)[:12])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            with open(path, "rb") as file:
                archive.writestr(entry, file.read(), compresslevel=9)
            n += 1
    print(f"{name}: {n} of {len(paths)} inputs, {os.path.getsize(packed)} bytes", flush=True)


def merge(target):
    """Seeds are made by the target: what only they reach is not kept."""
    os.makedirs(target + ".found", exist_ok=True)
    seeds, merged = write_seeds(target), target + ".merged"
    shutil.rmtree(merged, ignore_errors=True)
    shutil.copytree(seeds, merged)
    if libfuzzer(target, ["-merge=1", "-use_counters=0", merged, unpack(target), target + ".found"], 3600) is None:
        return False
    pack(name_of(target), merged, set(os.listdir(seeds)))
    return True


def main():
    verb, arguments = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 2 else ("", [])
    if verb == "unpack":
        for target in arguments:
            unpack(target)
        return 0
    if verb == "run" and len(arguments) > 2:
        results = [run(target, int(arguments[0]), int(arguments[1])) for target in arguments[2:]]
    elif verb == "merge":
        results = [merge(target) for target in arguments]
    else:
        sys.exit(__doc__)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
