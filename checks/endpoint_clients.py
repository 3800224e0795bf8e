"""Runs the clients of checks/endpoint_clients against the endpoint of a local edition, while their
keys get shards.

Usage: endpoint_clients.py LOCAL_BINARY NODE [CLIENT]...
"""

import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from expect import Wrong, expect
from local_edition import Api, Edition, rows_of

CHECKS = pathlib.Path(__file__).resolve().parent
PACKAGES = CHECKS.parent / ".tools" / "endpoint-node" / "node_modules"
# langgraph-checkpoint-aws knows no other names of the keys.
NAMES = {"TABLE_NAME": "items", "PARTITION_KEY_NAME": "PK", "SORT_KEY_NAME": "SK"}
AT_A_TIME = 3


class Growing:
    """Doubles the shards of a client's keys."""

    def __init__(self, edition):
        self.edition, self.widths = edition, {}

    def __call__(self, key, work):
        """Repeats work until the key has twice as many shards."""
        self.widths[key] = width = 2 * self.widths.get(key, 1)
        with ThreadPoolExecutor(1) as pool:
            growth = pool.submit(Api(self.edition).grow, key, width)
            while not growth.done():
                work()
            growth.result()

    def places(self):
        """Returns the keys of the shards that have rows."""
        stored = {row["PK"] for row in rows_of(self.edition.table(NAMES["TABLE_NAME"]))}
        return [place for place in stored if place.split("\x1f")[0] in self.widths]


class NodeClient:
    """A client that client.mjs serves in a process of its own."""

    def __init__(self, node, program):
        self.log, pipes = program.with_suffix(".log"), {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with self.log.open("w") as errors:
            self.process = subprocess.Popen([node, program], stderr=errors, text=True, bufsize=1, **pipes)

    def __enter__(self):
        self.key, self.opened = self.line(), 0
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def line(self):
        line = self.process.stdout.readline()
        expect(line, "the client's process ends:\n", self.log.read_text()[-700:])
        return json.loads(line)

    def request(self, *request):
        self.process.stdin.write(json.dumps(request) + "\n")
        return self.line()

    def __getattr__(self, method):
        return partial(self.request, method)

    def pages(self):
        self.opened = number = self.opened + 1
        while (page := self.request("page", number)) is not None:
            yield [tuple(item) for item in page]


def run(edition, node, program):
    """Runs a client. Returns what it did."""
    began, growing = time.monotonic(), Growing(edition)
    try:
        if program.suffix == ".py":
            done = importlib.import_module(program.stem).check(growing)
        else:
            with NodeClient(node, program) as client:
                done = importlib.import_module("story").story(client, growing)
        expect({*growing.widths.values()} == {8}, "the keys have", growing.widths, "shards")
        expect(len(places := growing.places()) > 4, "rows are on few shards:", places)
        return f"{program.stem:16}{time.monotonic() - began:5.1f} s  {done}; rows on {len(places)} shards"
    except Exception as error:
        raise Wrong(f"{program.stem}, {growing.widths}\n{traceback.format_exc()}") from error


def main():
    binary, node, *names = pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        # Node.js searches packages beside a program.
        programs = pathlib.Path(shutil.copytree(CHECKS / "endpoint_clients", folder / "clients"))
        (programs / "node_modules").symlink_to(PACKAGES)
        sys.path.append(str(programs))
        every = sorted(path for path in programs.glob("*_*.*") if path.suffix in (".py", ".mjs"))
        # Only Growing changes shards.
        variables = NAMES | {"SCALING": "alarm"}
        with Edition(binary, folder / "log", **variables) as edition, ThreadPoolExecutor(AT_A_TIME) as pool:
            os.environ |= {**NAMES, "AWS_ENDPOINT_URL_DYNAMODB": f"http://{edition.endpoint}"}
            wanted = [path for path in every if not names or path.stem in names]
            for line in pool.map(partial(run, edition, node), wanted):
                print(line, flush=True)


if __name__ == "__main__":
    try:
        main()
    except Wrong as wrong:
        sys.exit(f"failed: {wrong}")
