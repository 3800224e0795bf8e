"""Serves the functions with `cargo lambda watch` over a local edition, and invokes each with a
sample event by `cargo lambda invoke`.

Usage: cargo_lambda.py LOCAL_BINARY
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile

from expect import Wrong, await_that, expect
from local_edition import Edition
from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Timeout in seconds. It includes the compilation of the functions' development builds.
PATIENCE = 1_200
# Each function with its sample event, and a part of its response.
INVOCATIONS = {
    "writer": ("writer-post-item", '"statusCode":201'),
    "reader": ("reader-get-item", "firetvGen2"),
    "shard-scaler": ("shard-scaler-show", '"outcome":"shown"'),
}


def main():
    binary, port = pathlib.Path(sys.argv[1]).resolve(), free_port()
    address = ["--invoke-address", "127.0.0.1", "--invoke-port", str(port)]
    with tempfile.TemporaryDirectory() as scratch, Edition(binary, pathlib.Path(scratch) / "edition.log") as edition:
        tables = {"TABLE_NAME": "items", "METADATA_TABLE_NAME": "items-metadata"}
        environment = os.environ | tables | {"AWS_ENDPOINT_URL": f"http://{edition.dynamodb}"}
        log = pathlib.Path(scratch) / "watch.log"
        # A process group of its own with its functions, so that all of them are stopped.
        command, group = ["cargo", "lambda", "watch", "--ignore-changes", *address], {"start_new_session": True}
        with log.open("wb") as out:
            watch = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out, **group)

        def listens():
            expect(watch.poll() is None, "cargo lambda watch has ended")
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        try:
            await_that(listens, "cargo lambda watch listens")
            for function, (sample, part) in INVOCATIONS.items():
                command = ["cargo", "lambda", "invoke", function, "--data-file", f"events/{sample}.json", *address]
                done = subprocess.run(
                    command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
                )
                print(f"cargo lambda invoke {function}: {done.stdout.strip()}{done.stderr.strip()}", flush=True)
                response = json.dumps(json.loads(done.stdout), separators=(",", ":")) if done.returncode == 0 else ""
                expect(part in response, function, "does not return", part)
        except Wrong:
            print(log.read_text(errors="replace")[-4_000:])
            raise
        finally:
            os.killpg(watch.pid, signal.SIGTERM)
            watch.wait()


if __name__ == "__main__":
    main()
