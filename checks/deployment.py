"""Deploys the template to an emulated account that evaluates IAM, and uses the stacks. Run by
checks/deployment.

Usage: deployment.py [CASE...]

Cases, in this order: guided, failures, runbooks, updates, rights. Without an argument, all cases
run. Each is a module of this folder.
"""

import sys
import tempfile
import time
import traceback
from pathlib import Path

import environment  # noqa: F401 - before all that imports ministack
import failures
import guided
import scenarios
import runbooks
import updates
from emulated import ROOT, Account, World
from server import Server

CASES = {"guided": guided, "failures": failures, "runbooks": runbooks, "updates": updates, "rights": scenarios}


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


def main(wanted):
    if unknown := set(wanted) - set(CASES):
        sys.exit(f"usage: deployment.py [{'|'.join(CASES)}]...; unknown: {', '.join(sorted(unknown))}")
    template = ROOT / ".aws-sam/build/template.yaml"
    if not template.is_file():
        sys.exit("no build found: run checks/sam_build first")
    report, began = Report(), time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, Server() as server:
        world = World(Account(server), Path(scratch), template)
        for name in wanted or CASES:
            print(f"\n{name}", flush=True)
            try:
                CASES[name].check(report, world)
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
