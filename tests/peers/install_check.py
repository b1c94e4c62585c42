#!/usr/bin/env python3
"""`make install` into a folder: what lies where, that it fits together (pkg-config, man pages, bash completion, units, configuration), that a configuration stays, that uninstall leaves
nothing. Run by `make test`; prints a line a test."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from checks import run_tests

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PREFIX = "/opt/switchyard"


def make(goal, folder):
    """As the caller builds: with CUDA and MPI, or without."""
    parts = [word for word in os.environ.get("MAKEFLAGS", "").split() if re.match("(CUDA|MPI)=", word)]
    done = subprocess.run(["make", "--no-print-directory", "-C", ROOT, goal, *parts, "DESTDIR=" + folder, "PREFIX=" + PREFIX], capture_output=True, text=True, check=False,
                          env={k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")})
    assert done.returncode == 0, done.stderr


def output_of(*command, **how):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def commands(folder):
    return re.findall(r"^  ([a-z][a-z-]*) ", output_of(folder + PREFIX + "/bin/switchyard", "--help"), re.M)


def a_program_builds_by_pkg_config(folder):
    env = {**os.environ, "PKG_CONFIG_PATH": folder + PREFIX + "/lib/pkgconfig", "PKG_CONFIG_SYSROOT_DIR": folder}
    flags = output_of("pkg-config", "--cflags", "--libs", "switchyard", env=env).split()
    with open(folder + "/a.c", "w", encoding="utf-8") as out:
        out.write('#include <switchyard.h>\n#include <stdio.h>\nint main(void) { sy_client *c; int s = sy_client_connect("/nowhere", 100, &c); puts(sy_client_error(c)); sy_client_close(c); return s == 0; }\n')
    output_of("gcc", folder + "/a.c", "-o", folder + "/a", *flags)
    assert "/nowhere" in output_of(folder + "/a", env={"LD_LIBRARY_PATH": folder + PREFIX + "/lib"})
    assert "SWITCHYARD_0" in output_of("readelf", "--version-info", folder + "/a")


def each_command_has_its_page(folder):
    for command in commands(folder):
        with open(f"{folder}{PREFIX}/share/man/man1/switchyard-{command}.1", encoding="utf-8") as text:
            page = text.read()
        for option in re.findall(r"^  --([a-z0-9-]+)", output_of(folder + PREFIX + "/bin/switchyard", command, "--help"), re.M):
            assert "\\fB\\-\\-" + option.replace("-", "\\-") + "\\fR" in page, f"switchyard-{command}(1) lacks --{option}"


def completed(folder, *words):
    script = 'set -u; source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _switchyard; printf "%s\\n" "${COMPREPLY[@]}"'
    return output_of("bash", "-c", script, "bash", folder + PREFIX + "/share/bash-completion/completions/switchyard", *words, cwd=folder).split()


def bash_completes(folder):
    assert set(commands(folder)) | {"help"} == set(completed(folder, "switchyard", ""))
    assert completed(folder, "switchyard", "serve", "--pool") == ["--pool-bytes"]
    assert "opt" in completed(folder, "switchyard", "serve", "--models", "")
    assert "a.c" not in completed(folder, "switchyard", "serve", "--models", "a")  # a folder is wanted
    assert "a.c" in completed(folder, "switchyard", "serve", "--config", "a")
    assert completed(folder, "switchyard", "no-such-command", "") == []
    assert completed(folder, "switchyard", "models", "") == ["list", "load", "unload", "evict"]
    assert completed(folder, "switchyard", "jobs", "resume-") == ["resume-from"]
    program = folder + "/lists"  # of a server with a job and three models, of which one must not be expanded
    with open(program, "w", encoding="utf-8") as out:
        out.write('#!/bin/sh\n[ "$1" = jobs ] && printf " job  name\\n  17  check\\n" || printf "name  state\\nbert  ready\\nresnet  ready\\nr\\$(id)  ready\\n"\n')
    os.chmod(program, 0o755)
    assert completed(folder, program, "models", "unload", "r") == ["resnet"]
    assert completed(folder, program, "infer", "b") == ["bert"]
    assert completed(folder, program, "jobs", "pause", "1") == ["17"]
    assert "a.c" in completed(folder, program, "models", "load", "a")  # a package
    assert completed(folder, "/no/such/program", "models", "unload", "r") == []
    os.unlink(program)


def units_name_what_is_installed(folder):
    unit = open(f"{folder}{PREFIX}/lib/systemd/system/switchyard.service", encoding="utf-8").read()
    start = re.search(r"^ExecStart=(\S+) serve --config (\S+)$", unit, re.M)
    assert os.access(folder + start[1], os.X_OK) and os.path.isfile(folder + start[2]), start[0]
    assert "@" not in re.sub(r"@system-service|@resources", "", unit)
    output_of(folder + start[1], "serve", "--config", folder + start[2], "--check-config")  # it reads it
    reload = re.findall(r"^ExecReload=(.+)$", unit, re.M)
    assert len(reload) == 2 and reload[0] == start[0].removeprefix("ExecStart=") + " --check-config" and "-HUP" in reload[1], reload


def a_configuration_stays(folder):
    path = f"{folder}{PREFIX}/etc/switchyard/switchyard.conf"
    with open(path, "a", encoding="utf-8") as out:
        out.write("# mine\n")
    make("install", folder)
    assert open(path, encoding="utf-8").read().endswith("# mine\n")
    make("uninstall", folder)
    assert os.path.exists(path)
    os.unlink(path)


def uninstall_leaves_nothing(folder):
    for name in ("a", "a.c"):
        os.unlink(f"{folder}/{name}")
    make("install", folder)
    make("uninstall", folder)
    left = [os.path.join(d, f) for d, _, files in os.walk(folder) for f in files]
    assert not left, left


def main():
    folder = tempfile.mkdtemp(prefix="install_check_")
    try:
        make("install", folder)
        failed = run_tests((a_program_builds_by_pkg_config, each_command_has_its_page, bash_completes, units_name_what_is_installed, a_configuration_stays, uninstall_leaves_nothing), folder)
    finally:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
