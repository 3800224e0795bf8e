"""Runs the commands of each runbook of docs/deploying.md in one shell, and checks the result."""

import math
import shutil
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import documentation
import guided
from emulated import ROOT, Stack
from environment import ACCOUNT, REGION
from expect import await_that, run
from ministack.core.responses import request_scope
from ministack.services import dynamodb

DOCUMENT = ROOT / "docs/deploying.md"
BY = "checks/deployment"
# Whether a runbook restores the main table, and the metadata table.
RESTORED = {
    "Attach the tables of a deleted stack": (False, False),
    "Restore both tables to one point in time": (True, True),
    "Restore the metadata table alone": (False, True),
    "Restore the main table alone": (True, False),
}
# A parameter that no runbook names: an update keeps it.
GIVEN = {"NotificationEmail": "operator@example.com"}
# `aws dynamodb wait table-exists` gives up after 500 s, and a restore may take longer.
IMPATIENT = """#!/bin/sh
if [ "$1 $2 $3" = "dynamodb wait table-exists" ] && mkdir "waited-$5" 2>/dev/null; then
  echo "Waiter TableExists failed: Max attempts exceeded" >&2
  exit 255
fi
exec {aws} "$@"
"""


def commands():
    """Returns the commands of each section of the document, by its heading. Each begins with those
    before the first section."""
    preface, *parts = DOCUMENT.read_text(encoding="utf-8").split("\n## ")
    found = {part.split("\n", 1)[0]: of_part for part in parts if (of_part := run_here(part))}
    return {heading: run_here(preface) + of_part for heading, of_part in found.items()}


def run_here(part):
    blocks = [block for block in documentation.blocks_of(part) if block.mark and block.mark["by"] == BY]
    return [command for block in blocks for command, _ in block.commands()]


class Runbook:
    """One stack, whose keys change their shards before and after the point in time `when`."""

    def __init__(self, world, number, heading, lines):
        self.world, self.heading, self.lines = world, heading, lines
        self.name = f"runbook-{number}"
        self.folder = guided.project(world.folder / self.name, world.template.parent)
        self.wrong = []

    def holds(self, what, good, found):
        if not good:
            self.wrong.append(f"{what}: {found}")

    def scale(self, key, width):
        event = {"action": "set", "partition_key": key, "number_of_shards": width}
        response, failed = self.world.account.invoke(self.stack.outputs["ShardScalerAliasArn"], event)
        self.holds("a key is given shards", not failed and response.get("outcome") == "scaled", response)

    def write(self, key, value, count=12):
        for number in range(count):
            response = self.api.put(key, f"{number:02}", {"value": value})
            self.holds("a write", response.status == 200, response)

    def values(self, key):
        """Returns the values of a key's items, read by pages and one by one."""
        page = self.api.query(key, consistent="true")
        if page.status != 200:
            return [repr(page)]
        found = [(item["sort_key"], item["attributes"]["value"]) for item in page.json["items"]]
        single = [self.api.get(key, sort, consistent="true") for sort, _ in found]
        values = [each.json["attributes"]["value"] if each.status == 200 else repr(each) for each in single]
        return values if values == [value for _, value in found] else [f"pages {found}, one by one {values}"]

    def run(self):
        self.stack = Stack(self.world.account, self.name).create(self.world.package, GIVEN)
        self.api = self.world.caller(self.stack)
        # `early` grows before `when`, `late` grows after it, and `changed` is overwritten after it.
        self.write("early", "kept")
        self.scale("early", 4)
        self.write("early", "kept")
        self.write("changed", "before")
        self.write("late", "first", 4)
        when = math.ceil(time.time()) + 1
        await_that(lambda: time.time() > when + 0.5, "the second is over")
        self.write("changed", "after")
        self.scale("late", 8)
        self.write("late", "second")
        self.before = (self.stack.outputs["MainTableName"], self.stack.outputs["MetadataTableName"])
        script = "set -euo pipefail\n" + "\n".join(line.replace("\n> ", "\n") for line in self.lines)
        given = {"STACK": self.name, "WHEN": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))}
        environment = self.world.account.environment()
        aws = self.folder / "bin/aws"
        aws.parent.mkdir()
        aws.write_text(IMPATIENT.format(aws=shutil.which("aws", path=environment["PATH"])), encoding="utf-8")
        aws.chmod(0o755)
        environment |= given | {"PATH": f"{aws.parent}:{environment['PATH']}"}
        done = run("bash", "-c", script, cwd=self.folder, env=environment)
        self.holds("the commands end with 0", done.returncode == 0, f"{done.stdout[-500:]} {done.stderr[-1_000:]}")
        if done.returncode == 0:
            self.after()
        return self

    def after(self):
        # A new stack has a new API.
        self.stack.identity = None
        self.api = self.world.caller(self.stack)
        restored = [f"{self.name}-restored", f"{self.name}-restored-metadata"]
        is_restored = RESTORED[self.heading]
        self.uses(*(new if is_new else old for new, is_new, old in zip(restored, is_restored, self.before)))
        # A stack that is created again has the parameters of the runbook.
        keeps = self.parameters().items() >= GIVEN.items() or not any(is_restored)
        self.holds("parameters that are not named keep their values", keeps, self.parameters())
        changed, late = ("before", ["first"] * 4) if is_restored[0] else ("after", ["second"] * 12)
        for key, values in {"early": ["kept"] * 12, "changed": [changed] * 12, "late": late}.items():
            self.holds(f"the items of {key}", self.values(key) == values, self.values(key))
        self.write("early", "new")
        self.holds("writes continue, and are read", self.values("early") == ["new"] * 12, self.values("early"))
        self.scale("changed", 3)
        self.write("changed", "new")
        self.holds("a key grows", self.values("changed") == ["new"] * 12, self.values("changed"))
        tables = self.world.account.tables()
        self.holds("the earlier tables still exist", set(self.before) <= tables, tables)

    def uses(self, main, metadata):
        found = (self.stack.outputs["MainTableName"], self.stack.outputs["MetadataTableName"])
        self.holds("the stack uses the tables", found == (main, metadata), found)
        with request_scope(ACCOUNT, REGION):
            unprotected = [name for name in found if not dynamodb._tables[name].get("DeletionProtectionEnabled")]
            unprotected += [name for name in found if not dynamodb._pitr_settings.get(name)]
        self.holds("its tables are protected", not unprotected, unprotected)

    def parameters(self):
        return {each["ParameterKey"]: each["ParameterValue"] for each in self.stack.describe()["Parameters"]}


def check(report, world):
    found = commands()
    report.equal("docs/deploying.md has the runbooks that are checked", sorted(found), sorted(RESTORED))
    books = [Runbook(world, number, heading, lines) for number, (heading, lines) in enumerate(found.items())]
    with ThreadPoolExecutor(len(books)) as pool:
        for done in as_completed([pool.submit(book.run) for book in books]):
            book = done.result()
            report.check(f"{book.heading}: {len(book.lines)} commands, and their results", not book.wrong, book.wrong)
