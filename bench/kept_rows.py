"""What a bench keeps of its earlier runs: what the same machine measured, and nothing else."""
import json


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as text:
        return next((line.split(":", 1)[1].strip() for line in text if line.startswith("model name")), "unknown")


def kept(path, cores):
    """The content of a bench's file that was written on as many cores of this CPU; {}: there is none, or another machine's."""
    try:
        with open(path, encoding="utf-8") as text:
            told = json.load(text)
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) and (told.get("cpu"), told.get("cores")) == (cpu_name(), cores) else {}
