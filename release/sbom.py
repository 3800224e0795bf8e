"""Makes a bill of materials in CycloneDX 1.6 for each program of a release: the crates linked into
it.

Usage: sbom.py VERSION OUT

The crates come from `cargo tree`, which resolves features for the target as the build does. Their
checksums come from Cargo.lock. Crates that only build or test (build dependencies, procedural
macros, development dependencies) are not part of a program.
"""

import datetime
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import uuid

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.validation.json import JsonStrictValidator
from cyclonedx.schema import SchemaVersion
from packageurl import PackageURL

import pack

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The crates of programs that have another name.
CRATES = {"sharding-endpoint": "endpoint"}
TARGETS = {"arm64": "aarch64-unknown-linux-gnu", "x86_64": "x86_64-unknown-linux-gnu"}
LINE = re.compile(r"(?P<depth>\d+)(?P<name>\S+) v(?P<version>\S+?)(?: \([^)]*\))?\|(?P<license>[^|]*?)\|(?: \(\*\))?")


def sbom_name(version, function, architecture):
    return f"{pack.NAME}-{version}-{function}-{architecture}.cdx.json"


def graph(architecture):
    """Returns the linked crates of a target: the licence of each, and its direct dependencies.

    Features are resolved for all default members at once, as in the build, because one member may
    switch on a feature for the others."""
    command = ["cargo", "tree", "--locked", "--target", TARGETS[architecture], "--edges", "normal,no-proc-macro"]
    command += ["--prefix", "depth", "--format", "{p}|{l}|", "--charset", "ascii"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    licences, below, path = {}, {}, []
    for line in filter(None, printed.splitlines()):
        parsed = LINE.fullmatch(line)
        if not parsed:
            sys.exit(f"error: cargo tree printed an unexpected line: {line}")
        crate = (parsed["name"], parsed["version"])
        licences[crate] = parsed["license"]
        below.setdefault(crate, set())
        # A repeated crate is marked (*), and its dependencies are listed only the first time.
        del path[int(parsed["depth"]) :]
        if path:
            below[path[-1]].add(crate)
        path.append(crate)
    return licences, below


def checksums():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    return {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}


def component(name, version, licence, checksum):
    purl = PackageURL("cargo", None, name, version)
    own = checksum is None
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=str(purl),
        purl=None if own else purl,
        # Old manifests use the form "MIT/Apache-2.0".
        licenses=[LicenseExpression(licence.replace("/", " OR "))] if licence else [],
        hashes=[] if own else [HashType(alg=HashAlgorithm.SHA_256, content=checksum)],
    )


def reached(crate, below):
    found, open_ends = set(), [crate]
    while open_ends:
        one = open_ends.pop()
        if one not in found:
            found.add(one)
            open_ends.extend(below[one])
    return sorted(found)


def bill_of(function, architecture, linked, known, made_at):
    licences, below = linked
    root = next(crate for crate in licences if crate[0] == CRATES.get(function, function))
    parts = {crate: component(*crate, licences[crate], known[crate]) for crate in reached(root, below)}
    program = parts[root]
    program.type = ComponentType.APPLICATION
    program.properties.add(Property(name="target", value=TARGETS[architecture]))
    bom = Bom(components=[part for part in parts.values() if part is not program])
    bom.metadata.component = program
    bom.metadata.timestamp = made_at
    # Equal sources give an equal bill.
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, f"{pack.NAME}/{root[1]}/{function}/{architecture}")
    for crate, part in parts.items():
        bom.register_dependency(part, [parts[child] for child in sorted(below[crate])])
    return bom


def commit_time():
    """Returns the time of the released commit, from SOURCE_DATE_EPOCH if there is no repository."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        command = ["git", "log", "-1", "--format=%ct"]
        given = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    return datetime.datetime.fromtimestamp(int(given), datetime.timezone.utc)


def main():
    version, out = sys.argv[1], pathlib.Path(sys.argv[2])
    known, made_at, validator = checksums(), commit_time(), JsonStrictValidator(SchemaVersion.V1_6)
    for architecture in TARGETS:
        linked = graph(architecture)
        for program in pack.PROGRAMS:
            bom = bill_of(program, architecture, linked, known, made_at)
            text = JsonV1Dot6(bom).output_as_string(indent=2)
            wrong = validator.validate_str(text)
            if wrong:
                sys.exit(f"error: the bill of {program} for {architecture} is not CycloneDX 1.6: {wrong}")
            name = sbom_name(version, program, architecture)
            (out / name).write_text(text + "\n", encoding="utf-8")
            print(f"{name}: {len(bom.components)} crates")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    main()
