"""Runs the README's curl and aws commands against a local edition, and compares what they print with what the README shows.

Usage: readme.py LOCAL_BINARY
"""

import pathlib
import re
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def commands(readme: str):
    """Each `$ command` of a console block, continuation lines joined, with the output that the block shows for it."""
    for block in re.findall(r"```console\n(.*?)```", readme, re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            lines = part.rstrip("\n").split("\n")
            taken = 1
            while lines[taken - 1].endswith("\\"):
                taken += 1
            yield "\n".join(lines[:taken]), "\n".join(lines[taken:])


def main() -> int:
    api, dynamodb = free_port(), free_port()
    local = subprocess.Popen(
        [sys.argv[1], "serve", "--port", str(api), "--dynamodb-port", str(dynamodb)],
        stdout=subprocess.PIPE,
        text=True,
    )
    failed = ran = 0
    exports = "true"
    try:
        for line in local.stdout:
            if line.startswith("stop with"):
                break
        for command, shown in commands((ROOT / "README.md").read_text()):
            if command.startswith("export AWS_ACCESS_KEY_ID"):
                exports = command
                continue
            if not command.startswith(("curl ", "aws dynamodb")):
                continue
            here = command.replace("127.0.0.1:3000", f"127.0.0.1:{api}").replace("127.0.0.1:8000", f"127.0.0.1:{dynamodb}")
            done = subprocess.run(["sh", "-c", f"{exports}; {here}"], capture_output=True, text=True, timeout=60, check=False)
            printed = done.stdout.rstrip("\n")
            ran += 1
            if done.returncode != 0 or (shown and printed != shown):
                failed += 1
                print(f"WRONG {command}\n  shown   {shown}\n  printed {printed}{done.stderr}")
    finally:
        local.terminate()
        local.wait()
    print(f"{ran} commands of the README, {failed} print something else")
    return 1 if failed or ran < 8 else 0


if __name__ == "__main__":
    sys.exit(main())
