"""ministack, with what this folder adds, in this process: the check can look into it, and tell it what to do."""

import asyncio
import logging
import sys
import threading
import urllib.request

import environment
import evaluations
import functions
import stacks
import tables

# Seconds.
PATIENCE = 60


class Server:
    """A running emulator, with IAM evaluation on."""

    def __init__(self):
        self.port, self.url = environment.PORT, environment.URL
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        for part in (tables, evaluations, functions, stacks):
            part.install()
        self._thread.start()
        self._await()
        return self

    def __exit__(self, *_):
        functions.stop_all()
        # It complains of every connection that a client has left open.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        self._stop.set()
        self._thread.join(PATIENCE)

    def _serve(self):
        from hypercorn.asyncio import serve
        from hypercorn.config import Config

        from ministack.app import app

        config = Config()
        config.bind = [f"127.0.0.1:{self.port}"]
        config.graceful_timeout = 0
        # Longer than the check: a connection closed while it is taken from a pool would look like a lost answer.
        config.keep_alive_timeout = 3_600
        config.errorlog = config.accesslog = None

        async def stopped():
            await asyncio.get_running_loop().run_in_executor(None, self._stop.wait)

        asyncio.run(serve(app, config, shutdown_trigger=stopped))

    def _await(self):
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        pause = threading.Event()
        for _ in range(PATIENCE * 20):
            try:
                if direct.open(f"{self.url}/_ministack/health", timeout=5).status == 200:
                    return
            except OSError:
                if not self._thread.is_alive():
                    sys.exit("the emulator ended")
                pause.wait(0.05)
        sys.exit(f"the emulator does not answer within {PATIENCE} seconds")
