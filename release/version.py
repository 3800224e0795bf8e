"""Checks and sets the version of a release, on which the tag, the workspace and the changelog
agree, and prints the release's notes.

Usage: version.py check TAG [ROOT] | version.py prepare VERSION [ROOT] | version.py notes VERSION

`check` fails unless TAG is `v` followed by the workspace's version. Cargo.lock and the newest
release of CHANGELOG.md must have that version, too, and CHANGELOG.md must have no unreleased
changes. `prepare` establishes this state for a new version, dated today. It changes Cargo.toml,
Cargo.lock and CHANGELOG.md, and commits nothing. `notes` prints the version's part of CHANGELOG.md.
"""

import datetime
import pathlib
import re
import sys
import tomllib

LOG, UNRELEASED = "CHANGELOG.md", "Unreleased"
# https://keepachangelog.com/en/1.1.0/: "Types of changes".
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
# Where each file has the version: the workspace's own, what one crate requires of another, and the
# packages without a source.
PLACES = {
    "Cargo.toml": re.compile(r'((?:\[workspace\.package\]\n|path = "[^"]+", )version = "=?)([^"]+)'),
    "Cargo.lock": re.compile(r'(\nname = "[^"]+"\nversion = ")([^"]+)(?="\n(?!source))'),
}


def changes_of(log):
    """Returns the changes below each heading of the changelog: `Unreleased`, and `VERSION - DATE`, newest
    first. Ends the program if a change is not of a kind of Keep a Changelog."""
    _, *parts = re.split(r"^## (.*)\n", log, flags=re.M)
    found = dict(zip(parts[::2], map(str.strip, parts[1::2])))
    for heading, changes in found.items():
        kinds = re.findall(r"^### (.*)", changes, re.M)
        if not KINDS.issuperset(kinds) or (changes and not changes.startswith("### ")):
            sys.exit(f"error: {LOG}: a change below '{heading}' is not below one of {', '.join(sorted(KINDS))}")
    return found


def check(tag, texts):
    version = tomllib.loads(texts["Cargo.toml"])["workspace"]["package"]["version"]
    if tag != f"v{version}":
        sys.exit(f"error: the tag is {tag}, but Cargo.toml has {version}: the tag must be v{version}")
    for name, place in PLACES.items():
        if other := sorted({match[2] for match in place.finditer(texts[name])} - {version}):
            sys.exit(f"error: {name} has {', '.join(other)} of the workspace's own crates, and not only {version}")
    changes = changes_of(texts[LOG])
    if changes.get(UNRELEASED):
        sys.exit(f"error: {LOG} has unreleased changes: move them under {version}, or release another version")
    released = [heading for heading in changes if heading != UNRELEASED]
    newest, _, date = released[0].partition(" - ") if released else ("no release", "", "")
    if newest != version or not changes[released[0]]:
        sys.exit(f"error: the newest release of {LOG} is {newest}, and not {version} with changes")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", date) or date > str(datetime.date.today()):
        sys.exit(f"error: {LOG} dates {version} in the future, or not as 2026-01-31: {date}")
    print(f"{tag}: Cargo.toml, Cargo.lock and {LOG} agree")


def prepare(version, root, texts):
    for name, place in PLACES.items():
        texts[name] = place.sub(rf"\g<1>{version}", texts[name])
    heading = f"## {UNRELEASED}\n"
    texts[LOG] = texts[LOG].replace(heading, f"{heading}\n## {version} - {datetime.date.today()}\n", 1)
    check(f"v{version}", texts)
    for name, text in texts.items():
        (root / name).write_text(text, encoding="utf-8")


def notes(version, texts):
    for heading, changes in changes_of(texts[LOG]).items():
        if heading.startswith(f"{version} - "):
            return print(changes)
    sys.exit(f"error: {LOG} has no section '## {version} - DATE'")


def main():
    match sys.argv[1:]:
        case [("check" | "prepare" | "notes") as command, given, *rest] if len(rest) <= 1:
            root = pathlib.Path(*rest) if rest else pathlib.Path(__file__).resolve().parent.parent
            texts = {name: (root / name).read_text(encoding="utf-8") for name in (*PLACES, LOG)}
            if command == "check":
                check(given, texts)
            elif command == "prepare":
                prepare(given, root, texts)
            else:
                notes(given, texts)
        case _:
            sys.exit(__doc__.strip())


if __name__ == "__main__":
    main()
