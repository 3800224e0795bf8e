"""Checks promises of template.yaml and its nested templates that linters cannot check: the promises
on which the functions, their callers and the deployer rely. Each section is a file, such as
template_deployer.py.

Usage: template_contract.py [TEMPLATE]
"""

import sys
from pathlib import Path

from template_alarms import Alarms
from template_api import Api
from template_deployer import Deployer
from template_flat import TEMPLATE, Templates
from template_functions import Functions
from template_limits import Limits
from template_observed import Observed
from template_rights import Rights
from template_tables import Tables

SECTIONS = [Deployer, Functions, Api, Rights, Tables, Alarms, Limits, Observed]


def main():
    templates = Templates(Path(sys.argv[1]) if len(sys.argv) > 1 else TEMPLATE)
    held = failed = 0
    for section in SECTIONS:
        contract = section(templates)
        contract.check()
        for promise in contract.checked:
            print(f"ok    {promise}")
        for failure in contract.failures:
            print(f"FAIL  {failure}", file=sys.stderr)
        held, failed = held + len(contract.checked), failed + len(contract.failures)
    print(f"{held} hold, {failed} do not")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
