"""Rehearses the scripts of release/ and checks their results.

Usage: release.py FOLDER [ARM64_PROGRAMS X86_64_PROGRAMS]
"""

import pathlib
import shutil
import struct
import sys
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "release"))

import yaml  # noqa: E402

import bundle  # noqa: E402
import pack  # noqa: E402
import version as versions  # noqa: E402
from expect import Report, run  # noqa: E402

report = Report()


def succeeds(what, done):
    report.check(what, done.returncode == 0, done.stdout + done.stderr)


def script(name, *arguments):
    return run(sys.executable, ROOT / "release" / name, *arguments)


def refused(what, done, part):
    report.check(f"refused: {what}", done.returncode == 1 and part in done.stderr, done.stderr or "it passed")


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    if old not in text:
        sys.exit(f"{path.name} has no {old!r}: the rehearsal must be adapted")
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def rehearse_version(folder, version):
    """Checks on a copy that a prepared release passes, and that each disagreement is found."""
    major, minor, *_ = version.split(".")
    following, log = f"{major}.{int(minor) + 1}.0", "CHANGELOG.md"
    good, heading = folder / "good", "## Unreleased\n"
    good.mkdir()
    for name in ("Cargo.toml", "Cargo.lock", log):
        shutil.copy(ROOT / name, good)
    if not versions.changes_of((good / log).read_text(encoding="utf-8"))[versions.UNRELEASED]:
        edit(good / log, heading, f"{heading}\n### Fixed\n- A rehearsal.\n")
    succeeds(f"{following} can be prepared", script("version.py", "prepare", following, good))
    succeeds(f"v{following} passes once it is prepared", script("version.py", "check", f"v{following}", good))

    locked = 'name = "writer"\nversion = "{}"'.format
    for what, name, old, new, part in (
        ("unreleased changes", log, heading, f"{heading}\n### Added\n- Late.\n", "has unreleased changes"),
        ("an old Cargo.lock", "Cargo.lock", locked(following), locked("0.0.9"), "Cargo.lock has 0.0.9"),
        ("an unknown kind of change", log, "### ", "### Improved and ", "below one of Added"),
    ):
        wrong = shutil.copytree(good, folder / f"wrong, {what}")
        edit(wrong / name, old, new)
        refused(what, script("version.py", "check", f"v{following}", wrong), part)
    for tag in ("v99.0.0", following):
        refused(f"the tag {tag}", script("version.py", "check", tag, good), f"the tag must be v{following}")


def stand_ins(folder):
    """Makes files that begin like a program for the architecture."""
    for architecture, machine in pack.MACHINES.items():
        for program in pack.PROGRAMS:
            path = folder / architecture / program / "bootstrap"
            path.parent.mkdir(parents=True)
            path.write_bytes(
                b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 2, machine) + bytes(44) + program.encode()
            )
    return folder / "arm64", folder / "x86_64"


def check_programs(out, version, programs):
    for architecture, folder in programs.items():
        for program in pack.PROGRAMS:
            name = "bootstrap" if program in pack.FUNCTIONS else program
            with zipfile.ZipFile(out / pack.zip_name(version, program, architecture)) as archive:
                (entry,) = archive.infolist()
                holds = entry.filename == name and entry.external_attr >> 16 == 0o100755
                holds = holds and archive.read(entry) == (folder / program / "bootstrap").read_bytes()
            title = f"the zip of {program} for {architecture}"
            report.check(f"{title} has only the program, which is executable", holds, entry)


def check_bundle(folder, out, version, architecture):
    """Checks the bundle in a folder of its own, as after a download."""
    name, title = bundle.bundle_name(version, architecture), f"the bundle for {architecture}:"
    place = folder / f"downloaded-{architecture}" / name
    shutil.unpack_archive(out / f"{name}.zip", place.parent)
    paths = [place / path for path in bundle.templates()]
    succeeds(f"{title} cfn-lint", run("cfn-lint", *paths, cwd=place))

    templates = {path: yaml.load(path.read_bytes(), bundle.Loader) for path in paths}

    def named(kind, key):
        """Returns the files that the resources of a kind name."""
        rows = [(path, body) for path, template in templates.items() for body in template["Resources"].values()]
        return [path.parent / body["Properties"].get(key, "") for path, body in rows if body["Type"] == kind]

    code = {path.stem: path.is_file() and path.read_bytes() for path in named("AWS::Serverless::Function", "CodeUri")}
    zips = {name: (out / pack.zip_name(version, name, architecture)).read_bytes() for name in pack.FUNCTIONS}
    report.check(f"{title} the code of each function is the release's zip, byte for byte", code == zips, code.keys())
    nested = sorted(named("AWS::Serverless::Application", "Location"))
    report.equal(f"{title} the root names every other template", nested, sorted(paths[1:]))
    chosen = {*templates[paths[0]]["Mappings"]["Settings"]["Architecture"].values()}
    report.equal(f"{title} every profile has its architecture", chosen, {architecture})


def main():
    folder, given = pathlib.Path(sys.argv[1]), [pathlib.Path(path) for path in sys.argv[2:]]
    version = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]

    print("\n== release/version.py")
    rehearse_version(folder, version)

    print(f"\n== release/assemble {version}")
    arm64, x86_64 = given or stand_ins(folder / "programs")
    programs = {"arm64": arm64, "x86_64": x86_64}
    outs = [folder / "first", folder / "second"]
    for out in outs:
        done = run(ROOT / "release/assemble", version, arm64, x86_64, out)
        if done.returncode:
            print(done.stdout + done.stderr)
            return 1
    out = outs[0]
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    for name in sorted(files):
        print(f"      {len(files[name]) / 1e6:8.3f} MB  {name}")
    again = {path.name: path.read_bytes() for path in outs[1].iterdir()}
    differ = [name for name in files if files[name] != again.get(name)]
    report.check("assembled twice, every file has the same bytes", not differ and len(files) == len(again), differ)
    succeeds("SHA256SUMS is correct", run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=out))
    named = {line.split()[1] for line in files["SHA256SUMS"].decode().splitlines()}
    others = named ^ (set(files) - {"SHA256SUMS", "notes.md"})
    report.none("SHA256SUMS names every file of the release", others)
    notes = files["notes.md"]
    report.check("the notes have the version's changes", notes.startswith(b"### ") and len(notes) > 100, notes[:80])
    check_programs(out, version, programs)
    done = run(ROOT / "release/assemble", version, x86_64, arm64, folder / "swapped")
    refused("programs of the other architecture", done, "is not a program for arm64")
    done = run(ROOT / "release/assemble", version, arm64, x86_64, out)
    refused("a folder that already exists", done, "already exists")
    bills = len([*out.glob("*.cdx.json")])
    report.equal("there is a bill of materials for each program", bills, len(pack.PROGRAMS) * len(pack.MACHINES))
    for architecture in programs:
        check_bundle(folder, out, version, architecture)

    return report.end()


if __name__ == "__main__":
    sys.exit(main())
