"""Checks that CHANGELOG.md has the format of Keep a Changelog, and prints the notes of a release.

Usage: changelog.py check | changelog.py notes VERSION
"""

import datetime
import itertools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
UNRELEASED = "Unreleased"
# https://keepachangelog.com/en/1.1.0/: "Types of changes".
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
# https://semver.org/: a version, perhaps with the identifiers of a pre-release.
VERSION = re.compile(r"(?P<core>(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*)){2})(?:-(?P<pre>[0-9A-Za-z.-]+))?")
RELEASE = re.compile(rf"(?P<version>{VERSION.pattern}) - (?P<date>\d{{4}}-\d{{2}}-\d{{2}})")


class Malformed(Exception):
    """CHANGELOG.md does not have the format. The message names the line."""


class Section:
    """One version, or the unreleased changes: the kinds of changes, each with its lines."""

    def __init__(self, name, date, line):
        self.name, self.date, self.line = name, date, line
        self.kinds = {}

    def text(self):
        parts = [f"### {kind}\n" + "".join(f"{line}\n" for line in lines) for kind, lines in self.kinds.items()]
        return "\n".join(parts)

    def is_empty(self):
        return not any(self.kinds.values())


def order_of(version):
    """Returns a key that sorts versions by precedence: a pre-release comes before its release."""
    parsed = VERSION.fullmatch(version)
    core = tuple(int(number) for number in parsed["core"].split("."))
    if parsed["pre"] is None:
        return (core, 1, ())
    # Numeric identifiers come before others.
    return (core, 0, tuple((0, int(one), "") if one.isdigit() else (1, 0, one) for one in parsed["pre"].split(".")))


def heading(text, line):
    if text == UNRELEASED:
        return Section(text, None, line)
    parsed = RELEASE.fullmatch(text)
    if not parsed:
        raise Malformed(f"line {line}: '## {text}' is neither '## {UNRELEASED}' nor '## 1.2.3 - 2026-01-31'")
    try:
        date = datetime.date.fromisoformat(parsed["date"])
    except ValueError as error:
        raise Malformed(f"line {line}: {error}") from error
    return Section(parsed["version"], date, line)


def sections_of(text):
    """Returns all sections, newest first.

    Raises Malformed if a heading, a kind of change or the order does not have the format."""
    if not text.startswith("# Changelog\n"):
        raise Malformed("line 1: the title '# Changelog' is missing")
    sections, kind = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            sections.append(heading(line.removeprefix("## "), number))
            kind = None
        elif line.startswith("### "):
            name = line.removeprefix("### ")
            if not sections or name not in KINDS or name in sections[-1].kinds:
                raise Malformed(f"line {number}: '{line}' is not one of {', '.join(KINDS)}, once in each version")
            kind = sections[-1].kinds.setdefault(name, [])
        elif line.strip() and sections:
            if kind is None:
                raise Malformed(f"line {number}: a change is outside of {', '.join(KINDS)}")
            if not kind and not line.startswith("- "):
                raise Malformed(f"line {number}: a change must begin with '- '")
            kind.append(line)
    if not sections or sections[0].name != UNRELEASED:
        raise Malformed(f"the first section is not '## {UNRELEASED}'")
    released = sections[1:]
    for newer, older in itertools.pairwise(released):
        if UNRELEASED in (newer.name, older.name):
            raise Malformed(f"line {older.line}: '{UNRELEASED}' occurs twice")
        if order_of(newer.name) <= order_of(older.name) or newer.date < older.date:
            raise Malformed(
                f"line {older.line}: {older.name} of {older.date} is below {newer.name} of {newer.date}"
            )
    for section in released:
        if section.is_empty():
            raise Malformed(f"line {section.line}: {section.name} has no changes")
    return sections


def read(root=ROOT):
    return sections_of((root / "CHANGELOG.md").read_text(encoding="utf-8"))


def main():
    match sys.argv[1:]:
        case ["check"]:
            sections = read()
            print(f"CHANGELOG.md: {', '.join(section.name for section in sections)}")
        case ["notes", version]:
            notes = [section for section in read() if section.name == version]
            if not notes:
                raise Malformed(f"CHANGELOG.md has no section '## {version} - DATE'")
            print(notes[0].text(), end="")
        case _:
            sys.exit(__doc__.strip())


if __name__ == "__main__":
    try:
        main()
    except Malformed as error:
        sys.exit(f"error: {error}")
