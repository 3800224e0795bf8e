"""Deploys the template to an emulated account that evaluates IAM, and uses the stacks. Run by
checks/deployment.

Usage: deployment.py [CASE...]

Cases, in this order: guided, failures, runbooks, rights. Without an argument, all cases run. Each is
a module of this folder.
"""

import sys
import tempfile
import traceback
from pathlib import Path

import environment  # noqa: F401 - before all that imports ministack
import failures
import guided
import scenarios
import runbooks
from emulated import ROOT, Account, World
from expect import Report
from server import Server

CASES = {"guided": guided, "failures": failures, "runbooks": runbooks, "rights": scenarios}


def main(wanted):
    if unknown := set(wanted) - set(CASES):
        sys.exit(f"usage: deployment.py [{'|'.join(CASES)}]...; unknown: {', '.join(sorted(unknown))}")
    template = ROOT / ".aws-sam/build/template.yaml"
    if not template.is_file():
        sys.exit("no build found: run checks/sam_build first")
    report = Report()
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
    return report.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
