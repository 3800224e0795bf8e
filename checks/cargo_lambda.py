"""Serves the functions with `cargo lambda watch` over a local edition, and invokes each with a
sample event by `cargo lambda invoke`.

Usage: cargo_lambda.py LOCAL_BINARY
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Timeout in seconds. It includes the compilation of the functions' development builds.
PATIENCE = 1_200

# Each function with its sample event and a test of its response.
INVOCATIONS = [
    ("writer", "writer-post-item", lambda response: response["statusCode"] == 201),
    (
        "reader",
        "reader-get-item",
        lambda response: response["statusCode"] == 200 and "firetvGen2" in response["body"],
    ),
    ("shard-scaler", "shard-scaler-show", lambda response: response["outcome"] == "shown"),
]


def await_port(port: int, process: subprocess.Popen) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if process.poll() is not None:
            raise SystemExit(f"{process.args[0]} ended with {process.returncode}")
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on {port} within {PATIENCE} seconds")


def main() -> int:
    api, dynamodb, functions = free_port(), free_port(), free_port()
    environment = os.environ | {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{dynamodb}",
        "TABLE_NAME": "items",
        "METADATA_TABLE_NAME": "items-metadata",
    }
    local = subprocess.Popen(
        [sys.argv[1], "serve", "--port", str(api), "--dynamodb-port", str(dynamodb), "--endpoint-port", "0"],
        stdout=subprocess.DEVNULL,
    )
    watch = None
    failed = 0
    with tempfile.TemporaryFile("w+") as log:
        try:
            await_port(dynamodb, local)
            watch = subprocess.Popen(
                [
                    "cargo",
                    "lambda",
                    "watch",
                    "--ignore-changes",
                    "--invoke-address",
                    "127.0.0.1",
                    "--invoke-port",
                    str(functions),
                ],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
                # A process group of its own with its functions, so that all of them are stopped.
                start_new_session=True,
            )
            await_port(functions, watch)
            for function, sample, holds in INVOCATIONS:
                command = [
                    "cargo",
                    "lambda",
                    "invoke",
                    function,
                    "--data-file",
                    f"events/{sample}.json",
                ]
                command += ["--invoke-address", "127.0.0.1", "--invoke-port", str(functions)]
                done = subprocess.run(
                    command,
                    cwd=ROOT,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE,
                    check=False,
                )
                try:
                    good = done.returncode == 0 and holds(json.loads(done.stdout))
                except (ValueError, KeyError, TypeError):
                    good = False
                print(
                    f"{'ok   ' if good else 'WRONG'} cargo lambda invoke {function}: "
                    f"{done.stdout.strip()}{done.stderr.strip()}"
                )
                failed += not good
        finally:
            if watch:
                os.killpg(watch.pid, 15)
                watch.wait()
            local.terminate()
            local.wait()
            if failed:
                log.seek(0)
                print(log.read()[-4_000:])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
