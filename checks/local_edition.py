"""A local edition on free ports of this machine."""

import contextlib
import os
import subprocess
import time
import urllib.request

from ports import free_port

START_SECONDS = 30


@contextlib.contextmanager
def local_edition(binary, log, **variables):
    """Runs a local edition with these variables, and yields its URL once it responds."""
    url = f"http://127.0.0.1:{free_port()}"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [binary, "serve", "--port", url.rsplit(":", 1)[1], "--dynamodb-port", str(free_port()),
             "--endpoint-port", str(free_port())],
            stdout=output,
            stderr=output,
            env={**os.environ, **variables},
        )
    try:
        wait_for(server, url, log)
        yield url
    finally:
        server.terminate()
        server.wait()


def wait_for(server, url, log):
    end = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{url}/items?partition_key=ready", timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"the local edition does not respond at {url}\n{log.read_text()}")
