"""Generates clients with the commands of docs/api.md, and uses them against a local edition.

Usage: clients.py LOCAL_BINARY NODE
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import sys
import tempfile

from expect import output
from local_edition import Edition
from openapi_spec_validator import validate

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "checks" / "clients"
PYTHON = ROOT / ".tools" / "clients" / "bin"
PACKAGES = ROOT / ".tools" / "clients-node" / "node_modules"
BLOCK = re.compile(r"^<!-- run by checks/clients\.py -->\n```console\n(.*?)^```", re.S | re.M)


def run(folder, node, *command):
    """Runs a command in a folder, which must succeed."""
    node_folder = pathlib.Path(shutil.which(node)).parent
    # This program's Python, which has PyYAML, comes before the generators'.
    path = [pathlib.Path(sys.executable).parent, PYTHON, PACKAGES / ".bin", node_folder, os.environ["PATH"]]
    variables = {
        "PATH": os.pathsep.join(map(str, path)),
        "PYTHONPATH": f"{folder}{os.pathsep}{folder / 'generated'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    output(*command, cwd=folder, env=os.environ | variables)


def generate(folder, node):
    """Runs the commands of the document in a folder, and compiles the TypeScript there."""
    (folder / "release").symlink_to(ROOT / "release")
    (block,) = BLOCK.findall((ROOT / "docs/api.md").read_text(encoding="utf-8"))
    for command in re.findall(r"^\$ (.*)$", block, re.M):
        run(folder, node, *shlex.split(command))
        print(command, flush=True)
    # Of the three clients, this one is only loaded.
    run(folder, node, PYTHON / "python", "-c", "import items_client.models, items_client.api.items.store_item")
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
                [PYTHON / "python", PROGRAMS / "openapi_generator.py"],
                ["node", folder / "openapi_typescript.js"],
            ):
                run(folder, node, *program, edition.url)
                print(f"{program[1].stem}: the client stores, reads, pages, patches and deletes", flush=True)


if __name__ == "__main__":
    main()
