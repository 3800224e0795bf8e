"""Generates clients with the commands of docs/api.md, and uses each against a local edition.

Usage: clients.py LOCAL_BINARY NODE
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from local_edition import Edition
from openapi_spec_validator import validate

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "checks" / "clients"
PYTHON = ROOT / ".tools" / "clients" / "bin"
PACKAGES = ROOT / ".tools" / "clients-node" / "node_modules"
BLOCK = re.compile(r"^<!-- run by checks/clients\.py -->\n```console\n(.*?)^```", re.S | re.M)


def run(folder, node, *command):
    """Runs a command in a folder. Ends this program if it fails."""
    node_folder = pathlib.Path(shutil.which(node)).parent
    # This program's Python, which has PyYAML, comes before the generators'.
    path = [pathlib.Path(sys.executable).parent, PYTHON, PACKAGES / ".bin", node_folder, os.environ["PATH"]]
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={
            **os.environ,
            "PATH": os.pathsep.join(map(str, path)),
            "PYTHONPATH": f"{folder}{os.pathsep}{folder / 'generated'}",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"failed: {shlex.join(map(str, command))}\n{done.stdout}{done.stderr}")


def generate(folder, node):
    """Runs the commands of the document in a folder, and compiles the TypeScript there."""
    (folder / "release").symlink_to(ROOT / "release")
    (block,) = BLOCK.findall((ROOT / "docs/api.md").read_text(encoding="utf-8"))
    for command in re.findall(r"^\$ (.*)$", block, re.M):
        run(folder, node, *shlex.split(command))
        print(command, flush=True)
    validate(json.loads((folder / "clients.json").read_text(encoding="utf-8")))
    # Node.js and TypeScript search packages beside a program.
    (folder / "node_modules").symlink_to(PACKAGES)
    for name in ("package.json", "openapi_typescript.ts"):
        shutil.copy(PROGRAMS / name, folder)
    run(folder, node, "tsc", "--strict", "--target", "es2022", "--module", "nodenext", "openapi_typescript.ts")


def main():
    binary, node = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        generate(folder, node)
        with Edition(binary, folder / "log") as edition:
            for program in (
                [PYTHON / "python", PROGRAMS / "openapi_python_client.py"],
                [PYTHON / "python", PROGRAMS / "openapi_generator.py"],
                ["node", folder / "openapi_typescript.js"],
            ):
                run(folder, node, *program, edition.url)
                print(f"{program[1].stem}: the client stores, reads, pages, patches and deletes", flush=True)


if __name__ == "__main__":
    main()
