"""Runs moto's tests that are verified against AWS: against the embedded engine, and against the
endpoint in front of it in four modes. In each mode, every test must pass that passes against the
engine, except for those that checks/moto_suite/refused.txt lists.

Usage: moto_tests.py PROGRAM FOLDER_OF_MOTO
"""

import collections
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

from expect import run

MODES = ["engine", "not-armed", "armed-1", "armed-4", "changing"]
LISTED = pathlib.Path(__file__).parent / "moto_suite" / "refused.txt"
LEAST = 140  # Fewer would mean that the tests were not run.
SECONDS = 800


def tests(program, moto, mode):
    """Returns the tests that passed, and the messages of those that failed."""
    server = subprocess.Popen([program, mode], stdout=subprocess.PIPE, text=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.xml"
            environment = {
                **os.environ,
                "AWS_ENDPOINT_URL_DYNAMODB": server.stdout.readline().strip(),
                "MOTO_TEST_ALLOW_AWS_REQUEST": "true",
            }
            command = [sys.executable, "-m", "pytest", "-q", "-m", "aws_verified"]
            command += ["-p", "no:cacheprovider", "--junitxml", str(report), "tests/test_dynamodb"]
            run(*command, cwd=moto, env=environment, timeout=SECONDS)
            cases = list(xml.parse(report).iter("testcase"))
    finally:
        server.kill()
        server.wait()
    passed, failed = set(), {}
    for case in cases:
        name = f"{case.get('classname').rsplit('.', 1)[-1]}::{case.get('name')}"
        faults = [child for child in case if child.tag in ("failure", "error")]
        if faults:
            failed[name] = (faults[0].get("message") or "").replace("\n", " ")
        elif not any(child.tag == "skipped" for child in case):
            passed.add(name)
    return passed, failed


def main():
    program, moto = sys.argv[1:]
    lines = [line.split(maxsplit=1) for line in LISTED.read_text(encoding="utf-8").splitlines()]
    listed = {name: why.strip() for name, why in lines if name != "#"}
    with concurrent.futures.ThreadPoolExecutor(len(MODES)) as pool:
        ran = dict(zip(MODES, pool.map(lambda mode: tests(program, moto, mode), MODES)))
    of_engine, failed = ran["engine"]
    print(f"| engine | {len(of_engine)} | |\n{len(failed)} tests fail against the engine itself")
    always = {name for name, why in listed.items() if not why.startswith("perhaps")}
    wrong, never_failed = [], set(always)
    if len(of_engine) < LEAST:
        wrong.append(f"only {len(of_engine)} tests pass against the engine")
    for mode in MODES[1:]:
        passed, failed = ran[mode]
        missing = of_engine - passed
        never_failed -= missing
        allowed = missing & (listed.keys() if mode == "changing" else always if mode != "not-armed" else set())
        reasons = collections.Counter(listed[name] for name in allowed)
        told = ", ".join(f"{count} {why}" for why, count in sorted(reasons.items()))
        print(f"| {mode} | {len(of_engine & passed)} | {told} |")
        wrong += [f"{mode}: {name}: {failed.get(name, 'not run')[:500]}" for name in sorted(missing - allowed)]
    wrong += [f"listed, and passed in every mode: {name}" for name in sorted(never_failed)]
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
