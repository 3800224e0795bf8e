"""Checks and sets the version of a release, on which the tag, the workspace and the changelog
agree.

Usage: version.py check TAG [ROOT] | version.py prepare VERSION [ROOT]

`check` fails unless TAG is `v` followed by the workspace's version. Cargo.lock and the newest
release of CHANGELOG.md must have that version, too, and CHANGELOG.md must have no unreleased
changes. `prepare` establishes this state for a new version, dated today. It changes Cargo.toml,
Cargo.lock and CHANGELOG.md, and commits nothing.
"""

import datetime
import pathlib
import re
import sys
import tomllib

import changelog

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKSPACE_VERSION = re.compile(r'(\[workspace\.package\]\nversion = ")([^"]+)(")')
# What one crate of the workspace requires of another.
OWN_REQUIREMENT = re.compile(r'(path = "[^"]+", version = "=)([^"]+)(")')


class Disagreement(Exception):
    """The sources of a version do not agree. The message names them."""


def workspace_version(root):
    return tomllib.loads((root / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]


def own_packages(root):
    """Returns the workspace's packages in Cargo.lock, which have no source."""
    lock = tomllib.loads((root / "Cargo.lock").read_text(encoding="utf-8"))
    return [package for package in lock["package"] if "source" not in package]


def check(tag, root):
    version = workspace_version(root)
    if tag != f"v{version}":
        raise Disagreement(f"the tag is {tag}, but Cargo.toml has {version}: the tag must be v{version}")
    behind = [package["name"] for package in own_packages(root) if package["version"] != version]
    if behind:
        raise Disagreement(
            f"Cargo.lock has other versions than {version} of {', '.join(behind)}: run cargo update --workspace"
        )
    required = {match[2] for match in OWN_REQUIREMENT.finditer((root / "Cargo.toml").read_text(encoding="utf-8"))}
    if required != {version}:
        found = ", ".join(sorted(required))
        raise Disagreement(f"Cargo.toml requires {found} of the workspace's own crates, and not {version}")
    unreleased, *released = changelog.read(root)
    if not released or released[0].name != version:
        newest = released[0].name if released else "no release"
        raise Disagreement(f"the newest release of CHANGELOG.md is {newest}, and not {version}")
    if not unreleased.is_empty():
        raise Disagreement(
            f"CHANGELOG.md has unreleased changes: move them under {version}, or release another version"
        )
    if released[0].date > datetime.date.today():
        raise Disagreement(f"CHANGELOG.md dates {version} in the future: {released[0].date}")
    print(f"{tag}: Cargo.toml, Cargo.lock and CHANGELOG.md agree")


def prepare(version, root):
    if not changelog.VERSION.fullmatch(version):
        raise Disagreement(f"{version} is not a version such as 1.2.3")
    unreleased, *released = changelog.read(root)
    if unreleased.is_empty():
        raise Disagreement("CHANGELOG.md has no unreleased changes")
    if released and changelog.order_of(version) <= changelog.order_of(released[0].name):
        raise Disagreement(f"{version} is not above {released[0].name}, the newest release of CHANGELOG.md")
    old = workspace_version(root)

    def rewrite(name, change):
        path = root / name
        before = path.read_text(encoding="utf-8")
        after = change(before)
        if after == before and old != version:
            raise Disagreement(f"{name} does not contain the version")
        path.write_text(after, encoding="utf-8")

    def raised(text):
        text = WORKSPACE_VERSION.sub(rf"\g<1>{version}\g<3>", text, count=1)
        return OWN_REQUIREMENT.sub(rf"\g<1>{version}\g<3>", text)

    rewrite("Cargo.toml", raised)
    names = "|".join(re.escape(package["name"]) for package in own_packages(root))
    locked = re.compile(rf'(name = "(?:{names})"\nversion = "){re.escape(old)}(")(?!\nsource)')
    rewrite("Cargo.lock", lambda text: locked.sub(rf"\g<1>{version}\g<2>", text))
    dated = f"## {changelog.UNRELEASED}\n\n## {version} - {datetime.date.today()}\n"
    rewrite("CHANGELOG.md", lambda text: text.replace(f"## {changelog.UNRELEASED}\n", dated, 1))
    check(f"v{version}", root)


def main():
    match sys.argv[1:]:
        case ["check", tag, *root] if len(root) <= 1:
            check(tag, pathlib.Path(*root) if root else ROOT)
        case ["prepare", version, *root] if len(root) <= 1:
            prepare(version, pathlib.Path(*root) if root else ROOT)
        case _:
            sys.exit(__doc__.strip())


if __name__ == "__main__":
    try:
        main()
    except (Disagreement, changelog.Malformed) as error:
        sys.exit(f"error: {error}")
