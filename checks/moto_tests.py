"""Runs moto's tests that are verified against AWS: against the embedded engine, and against the
endpoint in front of it in four modes. In each mode, every test must pass that passes against the
engine, except for those that checks/moto/refused.txt lists with the operation that is refused.

Usage: moto_tests.py PROGRAM FOLDER_OF_TESTS [MODE...]
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

MODES = ["engine", "not-armed", "armed-1", "armed-4", "changing"]
LISTED = pathlib.Path(__file__).with_name("moto") / "refused.txt"


def run(program, tests, mode):
    """The tests that passed, and the reasons of the others."""
    server = subprocess.Popen([program, mode], stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().strip()
        report = pathlib.Path(tempfile.mkdtemp()) / "report.xml"
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL_DYNAMODB": url,
            "MOTO_TEST_ALLOW_AWS_REQUEST": "true",
            "AWS_ACCESS_KEY_ID": "fake",
            "AWS_SECRET_ACCESS_KEY": "fake",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-m", "aws_verified", "-p", "no:cacheprovider"]
        command += ["--junitxml", str(report), "tests/test_dynamodb"]
        subprocess.run(command, cwd=tests, env=environment, stdout=subprocess.DEVNULL, timeout=500, check=False)
        passed, failed = set(), {}
        for case in xml.parse(report).iter("testcase"):
            name = f"{case.get('classname').rsplit('.', 1)[-1]}::{case.get('name')}"
            faults = [child for child in case if child.tag in ("failure", "error")]
            if faults:
                failed[name] = (faults[0].get("message") or "").replace("\n", " ")
            elif not any(child.tag == "skipped" for child in case):
                passed.add(name)
        return passed, failed
    finally:
        server.kill()
        server.wait()


def listed():
    """Tests that may fail, with what they use that is refused."""
    lines = LISTED.read_text().splitlines()
    rows = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return {name: why for name, why in rows}


def main():
    program, tests, *modes = sys.argv[1:]
    refused, wrong, unused = listed(), [], set(listed())
    of_engine, failed_there = run(program, tests, "engine")
    print(f"| engine | {len(of_engine)} | {len(failed_there)} | |")
    if "-v" in os.environ.get("MOTO_TESTS", ""):
        for name, why in sorted(failed_there.items()):
            print(f"  engine fails {name}: {why[:200]}")
    for mode in modes or MODES[1:]:
        passed, failed = run(program, tests, mode)
        missing = sorted(of_engine - passed)
        allowed = [name for name in missing if name in refused and mode != "not-armed"]
        unused -= set(allowed)
        print(f"| {mode} | {len(passed)} | {len(failed)} | {len(allowed)} refused by name |")
        for name in missing:
            if name not in allowed:
                wrong.append(f"{mode}: {name}: {failed.get(name, 'not run')[:400]}")
    print(*wrong, sep="\n")
    if unused and not modes:
        wrong.append(f"listed as refused, and never failed: {sorted(unused)}")
        print(wrong[-1])
    if len(of_engine) < 60:
        wrong.append(f"only {len(of_engine)} tests pass against the engine")
        print(wrong[-1])
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
