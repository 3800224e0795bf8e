"""Deploys the template to an emulated account that evaluates IAM, and uses the stacks. Run by
checks/deployment.

Usage: deployment.py [CASE...]

Cases, in this order: guided, variants, failures, runbooks, updates, rights. Without an argument,
all cases run. Each is a module of this folder.
"""

import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

import environment  # noqa: F401 - before all that imports ministack
import failures
import guided
import rights
import runbooks
import updates
import variants
from emulated import ROOT, Account, World, built
from server import Server

CASES = {
    "guided": guided.check,
    "variants": variants.check,
    "failures": failures.check,
    "runbooks": runbooks.check,
    "updates": updates.check,
    "rights": rights.check,
}


class Report:
    """Prints and counts the results, as they arrive."""

    def __init__(self):
        self.held, self.failed = 0, []
        self._since = time.monotonic()

    def check(self, what, holds, found=""):
        took, self._since = time.monotonic() - self._since, time.monotonic()
        if holds:
            self.held += 1
        else:
            self.failed.append(what)
        verdict, reason = ("ok   ", "") if holds else ("WRONG", f": {found}")
        print(f"{verdict}  {what} ({took:.1f} s){reason}", flush=True)
        return bool(holds)

    def equal(self, what, found, wanted):
        return self.check(what, found == wanted, f"{found!r}, not {wanted!r}")

    def note(self, text):
        print(f"       {text}", flush=True)


def build(folder):
    """Returns the template after `sam build`, with the functions' programs."""
    if given := os.environ.get("FUNCTION_BINARIES"):
        return built(folder / "build", Path(given).resolve())
    template = ROOT / ".aws-sam/build/template.yaml"
    if not template.is_file():
        sys.exit("no build found: run checks/sam_build first, or set FUNCTION_BINARIES")
    return template


def main(wanted):
    if unknown := set(wanted) - set(CASES):
        sys.exit(f"usage: deployment.py [{'|'.join(CASES)}]...; unknown: {', '.join(sorted(unknown))}")
    report = Report()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        template = build(folder)
        with Server() as server:
            world = World(Account(server), folder, template)
            for name, check in CASES.items():
                if wanted and name not in wanted:
                    continue
                print(f"\n{name}", flush=True)
                try:
                    check(report, world)
                # The other cases run in any case.
                except Exception as error:
                    traceback.print_exc()
                    report.check(f"{name} runs to its end", False, f"{type(error).__name__}: {error}")
                world.clear()
    print(f"\n{report.held} ok, {len(report.failed)} failed, in {time.monotonic() - began:.0f} s")
    for what in report.failed:
        print(f"WRONG  {what}", file=sys.stderr)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
