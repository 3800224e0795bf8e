"""Rehearses the scripts of release/ and checks their results.

Usage: release.py FOLDER [ARM64_PROGRAMS X86_64_PROGRAMS]
"""

import hashlib
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

failed = 0


def expect(holds, promise, found=""):
    global failed
    failed += not holds
    print(f"{'ok   ' if holds else 'WRONG'} {promise}{'' if holds else f': {found}'}")


def run(*command, cwd=ROOT, **variables):
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def script(name, *arguments, **options):
    return run(sys.executable, ROOT / "release" / name, *arguments, **options)


def version_of_workspace():
    return tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]


def rehearse_version(folder):
    """Checks on a copy that a prepared release passes, and that each disagreement is found."""
    names = ["Cargo.toml", "Cargo.lock", "CHANGELOG.md"]
    unreleased, *released = changelog.read()
    newest = max([released[0].name] if released else [], key=changelog.order_of, default="0.0.0")
    major, minor, _ = (int(part) for part in changelog.VERSION.fullmatch(newest)["core"].split("."))
    following = f"{major}.{minor + 1}.0"

    def copy(name):
        place = folder / name
        place.mkdir()
        for one in names:
            shutil.copy(ROOT / one, place)
        return place

    def edit(place, name, old, new):
        text = (place / name).read_text(encoding="utf-8")
        if old not in text:
            sys.exit(f"{name} has no {old!r}: the rehearsal must be adapted")
        (place / name).write_text(text.replace(old, new, 1), encoding="utf-8")

    def prepared(name):
        place = copy(name)
        if unreleased.is_empty():
            edit(place, "CHANGELOG.md", "## Unreleased\n", "## Unreleased\n\n### Fixed\n- A rehearsal.\n")
        done = script("version.py", "prepare", following, place)
        expect(done.returncode == 0, f"{following} can be prepared ({name})", done.stderr)
        return place

    good = prepared("good")
    done = script("version.py", "check", f"v{following}", good)
    expect(done.returncode == 0, f"v{following} passes once it is prepared", done.stderr)
    for part in ("admin", "adviser", "cli", "endpoint", "engine", "functions", "local", "shared", "stream", "tests"):
        shutil.copytree(ROOT / part, good / part, ignore=shutil.ignore_patterns("data", "target"))
    locked = run("cargo", "metadata", "--locked", "--format-version", "1", cwd=good)
    expect(locked.returncode == 0, "Cargo accepts the prepared Cargo.lock without a change", locked.stderr)
    versions = {
        package["version"]
        for package in tomllib.loads((good / "Cargo.lock").read_text())["package"]
        if "source" not in package
    }
    expect(versions == {following}, "Cargo.lock has the new version for every own package, and for no other", versions)

    wrong = prepared("unreleased")
    edit(wrong, "CHANGELOG.md", "## Unreleased\n", "## Unreleased\n\n### Added\n- Too late.\n")
    behind = prepared("behind")
    edit(behind, "Cargo.lock", f'name = "writer"\nversion = "{following}"', 'name = "writer"\nversion = "0.0.9"')
    required = prepared("required")
    edit(required, "Cargo.toml", f'version = "={following}"', 'version = "=0.0.9"')
    future = prepared("future")
    edit(future, "CHANGELOG.md", f"## {following} - 2", f"## {following} - 3")
    nameless = prepared("nameless")
    edit(nameless, "CHANGELOG.md", f"## {following} - ", f"## {major}.{minor + 2}.0 - ")
    malformed = prepared("malformed")
    edit(malformed, "CHANGELOG.md", "### ", "### Improved and ")
    for name, tag, place, part in [
        ("a tag of another version", "v99.0.0", good, f"the tag must be v{following}"),
        ("a tag without v", following, good, f"the tag must be v{following}"),
        ("unreleased changes", f"v{following}", wrong, "has unreleased changes"),
        ("a Cargo.lock that is behind", f"v{following}", behind, "Cargo.lock has other versions"),
        ("a requirement of another version", f"v{following}", required, "Cargo.toml requires 0.0.9"),
        ("a date in the future", f"v{following}", future, "in the future"),
        ("a changelog without the version", f"v{following}", nameless, f"and not {following}"),
        ("an unknown kind of change", f"v{following}", malformed, "is not one of Added"),
    ]:
        done = script("version.py", "check", tag, place)
        expect(done.returncode == 1 and part in done.stderr, f"refused: {name}", done.stderr or "it passed")


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
            expect(holds, f"the zip of {program} for {architecture} has only the program, which is executable", entry)


def check_bills(out):
    """Compares the bills with Cargo.lock, which another program wrote."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))["package"]
    known = {(package["name"], package["version"]): package.get("checksum") for package in lock}
    bills = sorted(out.glob("*.cdx.json"))
    expect(len(bills) == len(pack.PROGRAMS) * len(pack.MACHINES), "there is a bill for each program", bills)
    for path in bills:
        bill = json.loads(path.read_text(encoding="utf-8"))
        parts = {(part["name"], part["version"]): part for part in bill["components"]}
        names = {name for name, _ in parts}
        wrong = [
            part
            for part, its in parts.items()
            if [one["content"] for one in its.get("hashes", [])] != [known[part]] * bool(known[part])
        ]
        linked = {"dynamodb-write-sharding"} - names
        foreign = {"proptest", "serde_derive", "cc", "aws-lc-sys", "openssl-sys"} & names
        if "-adviser-" in path.name:
            foreign |= {"api", "lambda_http", "axum"} & names
        else:
            linked |= {"api", "aws-sdk-dynamodb", "ring", "rustls"} - names
        if "-local-" in path.name:
            linked |= {"dynoxide-rs"} - names
        else:
            foreign |= {"dynoxide-rs"} & names
        unlicensed = [part for part, its in parts.items() if not its.get("licenses")]
        found = (wrong, linked, foreign, unlicensed)
        expect(
            not any(found),
            f"{path.name}: {len(parts)} crates, each with licence and checksum, and none for builds or tests only",
            found,
        )


class Store(http.server.BaseHTTPRequestHandler):
    """The part of S3 that `sam package` needs: an empty bucket that accepts objects, also in
    parts."""

    objects, parts = {}, {}

    def do_HEAD(self):
        self.respond(404)

    def do_GET(self):
        self.respond(404)

    def do_PUT(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path, _, query = self.path.partition("?")
        part = urllib.parse.parse_qs(query).get("partNumber")
        if part:
            self.parts.setdefault(path, {})[int(part[0])] = body
        else:
            self.objects[path] = body
        self.respond(200)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        path, _, query = self.path.partition("?")
        if query == "uploads":
            self.respond(200, b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>")
            return
        parts = self.parts.pop(path)
        self.objects[path] = b"".join(parts[number] for number in sorted(parts))
        self.respond(200, b"<CompleteMultipartUploadResult/>")

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
    name = bundle.bundle_name(version, architecture)
    place = folder / f"downloaded-{architecture}"
    with zipfile.ZipFile(out / f"{name}.zip") as archive:
        archive.extractall(place)
    place /= name
    done = run("sam", "validate", "--lint", "--region", "us-east-1", cwd=place)
    expect(done.returncode == 0, f"the bundle for {architecture}: sam validate --lint", done.stdout + done.stderr)
    done = run("cfn-lint", *sorted(place.glob("templates/*.yaml")), place / "template.yaml", cwd=place)
    expect(done.returncode == 0, f"the bundle for {architecture}: cfn-lint", done.stdout + done.stderr)

    Store.objects, Store.parts = {}, {}
    store = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=store.serve_forever, daemon=True).start()
    variables = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.server_port}",
        # Plain bodies, so the check can compare uploads.
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    }
    done = run(
        "sam",
        "package",
        "--s3-bucket",
        "rehearsal",
        "--output-template-file",
        "packaged.yaml",
        "--region",
        "us-east-1",
        cwd=place,
        **variables,
    )
    store.shutdown()
    expect(
        done.returncode == 0, f"the bundle for {architecture}: sam package, without a build", done.stdout + done.stderr
    )
    stored = {hashlib.sha256(body).hexdigest() for body in Store.objects.values()}
    zips = [out / pack.zip_name(version, function, architecture) for function in pack.FUNCTIONS]
    missing = [path.name for path in zips if hashlib.sha256(path.read_bytes()).hexdigest() not in stored]
    expect(not missing, f"the bundle for {architecture}: SAM uploads the release's own zips, byte for byte", missing)

    # CloudFormation receives the root and the packaged templates that SAM uploads.
    packaged = [body.decode() for body in Store.objects.values() if body[:2] != b"PK"]
    nested = len(bundle.templates()) - 1
    expect(
        len(packaged) == nested,
        f"the bundle for {architecture}: SAM uploads the {nested} nested templates",
        len(packaged),
    )
    packaged.append((place / "packaged.yaml").read_text(encoding="utf-8"))
    functions, settings = [], {}
    for text in packaged:
        template = yaml.load(text, bundle.Loader)
        settings |= template.get("Mappings", {}).get("Settings", {})
        functions += [
            one["Properties"] for one in template["Resources"].values() if one["Type"] == "AWS::Serverless::Function"
        ]
    found = [one.get("CodeUri") for one in functions]
    holds = len(found) == len(pack.FUNCTIONS) and all(str(one).startswith("s3://rehearsal/") for one in found)
    expect(holds, f"the bundle for {architecture}: the code of each function is the uploaded zip", found)
    chosen = set(settings["Architecture"].values())
    expect(chosen == {architecture}, f"the bundle for {architecture}: every profile has its architecture", chosen)


def main():
    folder, given = pathlib.Path(sys.argv[1]), [pathlib.Path(path) for path in sys.argv[2:]]
    version = version_of_workspace()

    print("\n== release/version.py and release/changelog.py")
    done = script("changelog.py", "check")
    expect(done.returncode == 0, "CHANGELOG.md has the format of Keep a Changelog", done.stderr)
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
    expect(not differ and len(files) == len(again), "assembled twice, every file has the same bytes", differ)
    done = run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=out)
    expect(done.returncode == 0, "SHA256SUMS is correct", done.stdout)
    named = {line.split()[1] for line in files["SHA256SUMS"].decode().splitlines()}
    expect(
        named == set(files) - {"SHA256SUMS", "notes.md"},
        "SHA256SUMS names every file of the release",
        named ^ set(files),
    )
    expect(
        files["notes.md"].startswith(b"### ") and len(files["notes.md"]) > 100,
        "the notes have the version's changes",
        files["notes.md"][:80],
    )
    view = json.loads(files[f"{pack.NAME}-{version}-clients.openapi.json"])
    description = yaml.safe_load((ROOT / "functions/api/openapi.yaml").read_text(encoding="utf-8"))
    operations = [{path: its.keys() for path, its in one["paths"].items()} for one in (view, description)]
    expect(operations[0] == operations[1], "the view for clients has every operation of the API", operations[0])
    check_programs(out, version, programs)
    done = run(ROOT / "release/assemble", version, x86_64, arm64, folder / "swapped")
    expect(
        done.returncode != 0 and "is not a program for arm64" in done.stderr,
        "refused: programs of the other architecture",
        done.stderr,
    )
    done = run(ROOT / "release/assemble", version, arm64, x86_64, out)
    expect(
        done.returncode != 0 and "already exists" in done.stderr,
        "refused: a folder that already exists",
        done.stderr,
    )
    check_bills(out)
    for architecture in programs:
        check_bundle(folder, out, version, architecture)

    print(f"\n{failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
