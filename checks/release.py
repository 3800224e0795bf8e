"""Rehearses the scripts of release/ and checks their results.

Usage: release.py FOLDER [ARM64_PROGRAMS X86_64_PROGRAMS]
"""

import http.server
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import threading
import tomllib
import urllib.parse
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "release"))

import yaml  # noqa: E402

import bundle  # noqa: E402
import changelog  # noqa: E402
import pack  # noqa: E402
from expect import Report  # noqa: E402

report = Report()


def succeeds(what, done):
    report.check(what, done.returncode == 0, done.stdout + done.stderr)


def run(*command, cwd=ROOT, **variables):
    options = {"capture_output": True, "text": True, "timeout": 600, "check": False}
    return subprocess.run([str(part) for part in command], cwd=cwd, env=os.environ | variables, **options)


def script(name, *arguments, **options):
    return run(sys.executable, ROOT / "release" / name, *arguments, **options)


def refused(what, done, part):
    report.check(f"refused: {what}", done.returncode == 1 and part in done.stderr, done.stderr or "it passed")


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    if old not in text:
        sys.exit(f"{path.name} has no {old!r}: the rehearsal must be adapted")
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def rehearse_version(folder):
    """Checks on a copy that a prepared release passes, and that each disagreement is found."""
    unreleased, *released = changelog.read()
    newest = max([released[0].name] if released else [], key=changelog.order_of, default="0.0.0")
    major, minor, _ = (int(part) for part in changelog.VERSION.fullmatch(newest)["core"].split("."))
    following = f"{major}.{minor + 1}.0"
    good, names = folder / "good", ["Cargo.toml", "Cargo.lock", "CHANGELOG.md"]
    good.mkdir()
    for name in names:
        shutil.copy(ROOT / name, good)
    if unreleased.is_empty():
        edit(good / "CHANGELOG.md", "## Unreleased\n", "## Unreleased\n\n### Fixed\n- A rehearsal.\n")
    done = script("version.py", "prepare", following, good)
    succeeds(f"{following} can be prepared", done)
    done = script("version.py", "check", f"v{following}", good)
    succeeds(f"v{following} passes once it is prepared", done)

    log, heading, late = "CHANGELOG.md", f"## {following} - ", "## Unreleased\n\n### Added\n- Late.\n"
    locked, required = 'name = "writer"\nversion = "{}"'.format, 'version = "={}"'.format
    for number, (what, name, old, new, part) in enumerate([
        ("unreleased changes", log, "## Unreleased\n", late, "has unreleased changes"),
        ("an old Cargo.lock", "Cargo.lock", locked(following), locked("0.0.9"), "Cargo.lock has other versions"),
        ("another requirement", "Cargo.toml", required(following), required("0.0.9"), "Cargo.toml requires 0.0.9"),
        ("a date in the future", log, f"{heading}2", f"{heading}3", "in the future"),
        ("a changelog without the version", log, heading, f"## {major}.{minor + 2}.0 - ", f"and not {following}"),
        ("an unknown kind of change", log, "### ", "### Improved and ", "is not one of Added"),
    ]):
        wrong = shutil.copytree(good, folder / f"wrong-{number}")
        edit(wrong / name, old, new)
        refused(what, script("version.py", "check", f"v{following}", wrong), part)
    for tag in ("v99.0.0", following):
        refused(f"the tag {tag}", script("version.py", "check", tag, good), f"the tag must be v{following}")

    for part in ("admin", "adviser", "cli", "endpoint", "engine", "functions", "local", "shared", "stream", "tests"):
        shutil.copytree(ROOT / part, good / part, ignore=shutil.ignore_patterns("data", "target"))
    done = run("cargo", "metadata", "--locked", "--format-version", "1", cwd=good)
    succeeds("Cargo accepts the prepared Cargo.lock without a change", done)
    packages = tomllib.loads((good / "Cargo.lock").read_text(encoding="utf-8"))["package"]
    versions = {package["version"] for package in packages if "source" not in package}
    report.equal("Cargo.lock has the new version for every own package, and for no other", versions, {following})


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
            report.check(f"the zip of {program} for {architecture} has only the program, which is executable", holds, entry)


def check_bills(out):
    """Compares the bills with Cargo.lock, which another program wrote."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))["package"]
    known = {(package["name"], package["version"]): package.get("checksum") for package in lock}
    bills = sorted(out.glob("*.cdx.json"))
    report.equal("there is a bill for each program", len(bills), len(pack.PROGRAMS) * len(pack.MACHINES))
    for path in bills:
        bill = json.loads(path.read_text(encoding="utf-8"))
        parts = {(part["name"], part["version"]): part for part in bill["components"]}
        names = {name for name, _ in parts}
        wrong = [
            part
            for part, its in parts.items()
            if [one["content"] for one in its.get("hashes", [])] != [known[part]] * bool(known[part])
        ]
        linked, foreign = {"dynamodb-write-sharding"}, {"proptest", "serde_derive", "cc", "aws-lc-sys", "openssl-sys"}
        if "-adviser-" in path.name:
            foreign |= {"api", "lambda_http", "axum"}
        else:
            linked |= {"api", "aws-sdk-dynamodb", "ring", "rustls"}
        (linked if "-local-" in path.name else foreign).add("dynoxide-rs")
        unlicensed = [part for part, its in parts.items() if not its.get("licenses")]
        found = (wrong, linked - names, foreign & names, unlicensed)
        promise = f"{path.name}: {len(parts)} crates, each with licence and checksum, and none for builds or tests only"
        report.check(promise, not any(found), found)


class Store(http.server.BaseHTTPRequestHandler):
    """The part of S3 that `sam package` needs: an empty bucket that accepts objects, also in
    parts."""

    def body(self):
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def do_HEAD(self):
        self.respond(404)

    do_GET = do_HEAD

    def do_PUT(self):
        path, _, query = self.path.partition("?")
        [part] = urllib.parse.parse_qs(query).get("partNumber", ["0"])
        self.server.objects.setdefault(path, {})[int(part)] = self.body()
        self.respond(200)

    def do_POST(self):
        self.body()
        self.respond(200, b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>")

    def respond(self, status, body=b""):
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("etag", '"0"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def check_bundle(folder, out, version, architecture):
    """Checks the bundle with SAM in a folder of its own, as after a download."""
    name, title = bundle.bundle_name(version, architecture), f"the bundle for {architecture}:"
    shutil.unpack_archive(out / f"{name}.zip", folder / f"downloaded-{architecture}")
    place = folder / f"downloaded-{architecture}" / name
    done = run("cfn-lint", *sorted(place.glob("templates/*.yaml")), place / "template.yaml", cwd=place)
    succeeds(f"{title} cfn-lint", done)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store) as store:
        store.objects = {}
        threading.Thread(target=store.serve_forever, daemon=True).start()
        command = ["sam", "package", "--s3-bucket", "rehearsal", "--region", "us-east-1"]
        # Plain bodies, so the check can compare uploads.
        plain = {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required"}
        url = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.server_port}"}
        done = run(*command, "--output-template-file", "packaged.yaml", cwd=place, **plain, **url)
        store.shutdown()
    succeeds(f"{title} sam package, without a build", done)
    stored = [b"".join(parts[number] for number in sorted(parts)) for parts in store.objects.values()]
    zips = [out / pack.zip_name(version, function, architecture) for function in pack.FUNCTIONS]
    missing = [path.name for path in zips if path.read_bytes() not in stored]
    report.none(f"{title} SAM uploads the release's own zips, byte for byte", missing)

    # CloudFormation receives the root and the packaged templates that SAM uploads.
    packaged, nested = [body for body in stored if body[:2] != b"PK"], len(bundle.templates()) - 1
    report.equal(f"{title} SAM uploads the nested templates", len(packaged), nested)
    root, *others = [yaml.load(text, bundle.Loader) for text in ((place / "packaged.yaml").read_bytes(), *packaged)]
    bodies = [body for template in (root, *others) for body in template["Resources"].values()]
    found = [body["Properties"].get("CodeUri") for body in bodies if body["Type"] == "AWS::Serverless::Function"]
    holds = len(found) == len(pack.FUNCTIONS) and all(str(one).startswith("s3://rehearsal/") for one in found)
    report.check(f"{title} the code of each function is the uploaded zip", holds, found)
    chosen = {*root["Mappings"]["Settings"]["Architecture"].values()}
    report.equal(f"{title} every profile has its architecture", chosen, {architecture})


def main():
    folder, given = pathlib.Path(sys.argv[1]), [pathlib.Path(path) for path in sys.argv[2:]]
    version = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]

    print("\n== release/version.py and release/changelog.py")
    done = script("changelog.py", "check")
    succeeds("CHANGELOG.md has the format of Keep a Changelog", done)
    rehearse_version(folder)

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
    done = run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=out)
    succeeds("SHA256SUMS is correct", done)
    named = {line.split()[1] for line in files["SHA256SUMS"].decode().splitlines()}
    others = named ^ (set(files) - {"SHA256SUMS", "notes.md"})
    report.none("SHA256SUMS names every file of the release", others)
    notes = files["notes.md"]
    report.check("the notes have the version's changes", notes.startswith(b"### ") and len(notes) > 100, notes[:80])
    view = json.loads(files[f"{pack.NAME}-{version}-clients.openapi.json"])
    description = yaml.safe_load((ROOT / "functions/api/openapi.yaml").read_text(encoding="utf-8"))
    operations = [{path: its.keys() for path, its in one["paths"].items()} for one in (view, description)]
    report.equal("the view for clients has every operation of the API", *operations)
    check_programs(out, version, programs)
    done = run(ROOT / "release/assemble", version, x86_64, arm64, folder / "swapped")
    refused("programs of the other architecture", done, "is not a program for arm64")
    refused("a folder that already exists", run(ROOT / "release/assemble", version, arm64, x86_64, out), "already exists")
    check_bills(out)
    for architecture in programs:
        check_bundle(folder, out, version, architecture)

    return report.end()


if __name__ == "__main__":
    sys.exit(main())
