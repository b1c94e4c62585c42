#!/usr/bin/env python3
"""Writes man pages and the bash completion from what the program says of itself.

    help_pages.py man PROGRAM FOLDER         # FOLDER/switchyard.1, FOLDER/switchyard-COMMAND.1
    help_pages.py completion PROGRAM FILE

There is no second text: `switchyard --help` and `switchyard COMMAND --help` are the source. Text whose form is not the usual one is an error.
"""
import pathlib
import re
import subprocess
import sys


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Command:
    """A command's help, in parts: usage, description (lines), options [(name, argument, text)]."""

    def __init__(self, program, name, summary):
        self.name, self.summary = name, summary
        lines = output_of(program, name, "--help").splitlines()
        if not lines or not lines[0].startswith("usage: switchyard "):
            raise SystemExit(f"{name} --help does not begin with its usage: {lines[:1]}")
        self.usage = lines[0].removeprefix("usage: ")
        self.description, self.options = [], []
        for line in lines[1:]:
            option = re.fullmatch(r"  --([a-z0-9-]+)(?: (\S.*))?", line)
            if option:
                self.options.append([option[1], option[2], ""])
            elif self.options and line.startswith("        "):
                self.options[-1][2] += line.strip() + " "
            elif self.options:
                raise SystemExit(f"{name} --help: what is '{line}' behind the options?")
            else:
                self.description.append(line)
        self.verbs = list(dict.fromkeys(re.findall(rf"^  {name} \[?([a-z][a-z-]*)\]?(?: |$)", "\n".join(self.description), re.M)))
        if not self.options:
            raise SystemExit(f"{name} --help lists no options")


def commands_of(program):
    found = re.findall(r"^  ([a-z][a-z-]*) +(\S.*)$", output_of(program, "--help"), re.M)
    if not found:
        raise SystemExit(f"{program} --help lists no commands")
    return [Command(program, name, summary) for name, summary in found]


# ---- man pages --------------------------------------------------------------------------------


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace('"', "\\(dq").replace("~", "\\(ti").replace("^", "\\(ha")
    return "\\&" + text if text.startswith(".") else text


def heading(name, version, summary):
    title = name.upper().replace("-", "\\-")
    return [f'.TH {title} 1 "" "switchyard {version}" "User Commands"', ".SH NAME", f"{roff(name)} \\- {roff(summary)}"]


def paragraphs(lines):
    """Running text is filled, what is set out in columns or drawn stays as it is."""
    out, literal = [], False
    for line in lines:
        if not line.strip():
            if literal:
                out.append(".fi")
                literal = False
            out.append(".PP")
            continue
        if line.startswith("  ") != literal:
            out.append(".fi" if literal else ".nf")
            literal = not literal
        out.append(roff(line))
    return out + ([".fi"] if literal else [])


def squeeze(lines):
    """No .PP in front of a heading or another .PP, as man's checks want it."""
    out = []
    for line in lines:
        if out and out[-1] == ".PP" and (line == ".PP" or line.startswith((".SH", ".TP"))):
            out.pop()
        if line == ".PP" and out and out[-1].startswith(".SH"):
            continue
        out.append(line)
    while out and out[-1] == ".PP":
        out.pop()
    return out


def man_of(command, version, see_also):
    lines = heading("switchyard-" + command.name, version, command.summary)
    lines += [".SH SYNOPSIS", f".B {roff(command.usage)}", ".SH DESCRIPTION"] + paragraphs(command.description) + [".SH OPTIONS"]
    for name, argument, text in command.options:
        lines += [".TP", f"\\fB\\-\\-{roff(name)}\\fR" + (f" \\fI{roff(argument)}\\fR" if argument else ""), roff(text.strip())]
    lines += [".SH EXIT STATUS", "0: done; 1: failed; 2: wrong usage.", ".SH SEE ALSO", see_also]
    return "\n".join(squeeze(lines)) + "\n"


def main_page(commands, version):
    lines = heading("switchyard", version, "training and inference on one accelerator")
    lines += [".SH SYNOPSIS", ".B switchyard", "\\fICOMMAND\\fR [\\fIoptions\\fR]", ".SH DESCRIPTION",
              "Training has the device whenever no request waits. When a request comes, training stops between two layers, the model that the request",
              "needs streams in while its first layers already compute, and training goes on afterwards with the same bits.",
              ".SH COMMANDS"]
    for command in commands:
        lines += [".TP", f"\\fB{roff(command.name)}\\fR", f"{roff(command.summary)}; see \\fBswitchyard\\-{roff(command.name)}\\fR(1)"]
    lines += [".SH ENVIRONMENT", ".TP", "\\fBSY_LOG\\fR", "error, warn, info or debug: what is logged.",
              ".SH FILES", ".TP", "\\fI/etc/switchyard/switchyard.conf\\fR",
              "what the service goes by: each option of \\fBswitchyard\\-serve\\fR(1), in TOML (\\-\\-config)."]
    return "\n".join(squeeze(lines)) + "\n"


def write_man(program, folder):
    version = output_of(program, "version").split()[1]
    commands = commands_of(program)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "switchyard.1").write_text(main_page(commands, version))
    for command in commands:
        (folder / f"switchyard-{command.name}.1").write_text(man_of(command, version, "\\fBswitchyard\\fR(1)"))


# ---- completion -------------------------------------------------------------------------------

COMPLETION = """\
# bash completion of switchyard; made by help_pages.py.
_switchyard()
{{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} options files folders verbs lists words place=2

    if [ "$COMP_CWORD" = 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W '{commands} help' -- "$cur")
        return
    fi
    case ${{COMP_WORDS[1]}} in
{cases}
    help) mapfile -t COMPREPLY < <(compgen -W '{commands}' -- "$cur"); return ;;
    *) return ;;
    esac
    case " $folders " in *" $prev "*) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;; esac
    case " $files " in *" $prev "*) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;; esac
    if [[ $verbs && $COMP_CWORD = 2 && $cur != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$cur")
        return
    fi
    [ -z "$verbs" ] || place=3
    if [[ $lists && $COMP_CWORD = "$place" && $cur != -* && $prev != -* ]]; then
        # compgen -W expands its words as the shell does: of the server's names only plain ones
        words=$(timeout 2 "${{COMP_WORDS[0]}}" "$lists" 2>/dev/null | awk 'NR > 1 && $1 ~ /^[A-Za-z0-9._-]+$/ {{ print $1 }}')
        mapfile -t COMPREPLY < <(compgen -W "$words" -f -- "$cur")
        return
    fi
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    fi
}}
complete -o filenames -F _switchyard switchyard
"""


def listed_by(command):
    """The command that lists what stands behind this one, or behind its verbs; "": none does."""
    return command.name if command.verbs else "models" if " MODEL " in command.usage else ""


def case_of(command):
    def names(chosen):
        return " ".join("--" + name for name, argument, _ in command.options if chosen(argument or ""))

    return (f"    {command.name}) options='{names(lambda _: True)}' files='{names(lambda a: 'FILE' in a or '.' in a or 'PATH' in a)}' "
            f"folders='{names(lambda a: a == 'DIR')}' verbs='{' '.join(command.verbs)}' lists='{listed_by(command)}' ;;")


def write_completion(program, path):
    commands = commands_of(program)
    text = COMPLETION.format(commands=" ".join(c.name for c in commands), cases="\n".join(case_of(c) for c in commands))
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text(text)


def main(words):
    if len(words) != 3 or words[0] not in ("man", "completion"):
        raise SystemExit(__doc__)
    {"man": write_man, "completion": write_completion}[words[0]](words[1], words[2])


if __name__ == "__main__":
    main(sys.argv[1:])
