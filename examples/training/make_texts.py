#!/usr/bin/env python3
"""Makes the texts of the examples from Debian's translated manual pages.

    make_texts.py FOLDER

FOLDER/languages/train/LANGUAGE.txt and .../test/LANGUAGE.txt: one sentence or so a line, as many for each language, no line in both.
FOLDER/pages.txt, pages-test.txt: running text of one language, to learn what comes next.
The packages are fetched with apt-get download and unpacked into FOLDER; nothing is installed. What is there is kept.
"""
import gzip
import hashlib
import pathlib
import re
import subprocess
import sys

LANGUAGES = ["cs", "de", "es", "fr", "it", "nl", "pl", "pt-br"]
LINES = 1900  # of each language, for training
TEST_LINES = 300
SHORTEST, LONGEST = 40, 200  # bytes
PAGES_LANGUAGE = "fr"
PAGES_BYTES = 1_000_000
TEST_BYTES = 50_000


def fetch(folder, language):
    """The package's man pages, unpacked."""
    target = folder / "packages" / language
    if not (target / "done").exists():
        target.mkdir(parents=True, exist_ok=True)
        print(f"fetching manpages-{language}", flush=True)
        subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", f"manpages-{language}"], cwd=target, check=True)
        for package in target.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, target / "files"], check=True)
            package.unlink()
        (target / "done").touch()
    return sorted((target / "files").rglob("*.gz"))


def plain(line):
    """A line of roff without its marks; None for what is not running text."""
    if line.startswith((".", "'")):
        if not re.match(r"\.(B|I|BR|IR|RB|RI|BI|IB)\b", line):
            return None
        line = line.split(" ", 1)[1].replace('"', "") if " " in line else ""
    line = re.sub(r"\\f(\[[A-Z]*\]|\(..|.)|\\s[-+]?\d+|\\[&|^/,%:]", "", line)
    line = re.sub(r"\\\(aq|\\\(oq|\\\(cq|\\\[[aoc]q\]", "'", line)
    line = re.sub(r"\\\((..)|\\\[[^]]*\]|\\\*\(..|\\\*.", "", line)
    return line.replace("\\-", "-").replace("\\e", "\\").replace("\\ ", " ").replace("\\", "").strip()


def sections(path):
    """Paragraphs of a page."""
    text, found = [], []
    try:
        lines = gzip.open(path, "rt", encoding="utf-8").read().splitlines()
    except (UnicodeDecodeError, OSError):
        return []
    for line in lines + [".PP"]:
        clean = plain(line)
        if clean:
            text.append(clean)
        elif text and line.startswith((".PP", ".P", ".TP", ".SH", ".SS", ".IP", ".LP")):
            found.append(re.sub(r"\s+", " ", " ".join(text)))
            text = []
    return found


# Pages are translated in part; what is still English is nobody's language here.
ENGLISH = re.compile(r"\b(the|and|with|this|that|from|which|are|by|to|is not|if)\b", re.IGNORECASE)


def sentences(paragraph):
    for sentence in re.split(r"(?<=[.:;!?]) ", paragraph):
        letters = sum(c.isalpha() or c == " " for c in sentence)
        if SHORTEST <= len(sentence.encode()) <= LONGEST and letters > 0.85 * len(sentence) \
                and not ENGLISH.search(sentence):
            yield sentence


def by_hash(line):
    return hashlib.sha256(line.encode()).digest()


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.rename(path)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    if (folder / "pages-test.txt").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for language in LANGUAGES:
        paragraphs = [p for page in fetch(folder, language) for p in sections(page)]
        lines = sorted({s for p in paragraphs for s in sentences(p)}, key=by_hash)
        if len(lines) < LINES + TEST_LINES:
            sys.exit(f"manpages-{language}: {len(lines)} lines; {LINES + TEST_LINES} are needed")
        write(folder / f"languages/test/{language}.txt", "\n".join(lines[:TEST_LINES]) + "\n")
        write(folder / f"languages/train/{language}.txt",
              "\n".join(lines[TEST_LINES:TEST_LINES + LINES]) + "\n")
        print(f"{language}: {len(lines)} lines", flush=True)
        if language == PAGES_LANGUAGE:
            pages = "\n".join(dict.fromkeys(p for p in paragraphs if len(p) > 60)).encode()
            pages = pages[:PAGES_BYTES + TEST_BYTES].decode(errors="ignore")
    cut = len(pages) - TEST_BYTES
    write(folder / "pages.txt", pages[:cut])
    write(folder / "pages-test.txt", pages[cut:])


main()
