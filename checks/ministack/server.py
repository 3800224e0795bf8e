"""Runs ministack with the additions of this folder in this process, so that the check can inspect
and control it."""

import asyncio
import logging
import threading
import urllib.request

import environment
import evaluations
import functions
import stacks
import tables
from expect import await_that


class Server:
    """A running emulator with IAM evaluation."""

    def __init__(self):
        self.port, self.url = environment.PORT, environment.URL
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        for part in (tables, evaluations, functions, stacks):
            part.install()
        self._thread.start()
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def responds():
            try:
                return direct.open(f"{self.url}/_ministack/health", timeout=5)
            except OSError:
                return None

        await_that(responds, "a response of the emulator").close()
        return self

    def __exit__(self, *_):
        functions.stop_all()
        # The server logs a warning for every connection that a client left open.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        self._stop.set()
        self._thread.join(60)

    def _serve(self):
        from hypercorn.asyncio import serve
        from hypercorn.config import Config
        from ministack.app import app

        config = Config()
        config.bind, config.graceful_timeout = [f"127.0.0.1:{self.port}"], 0
        # Longer than the check. Otherwise a connection that closes while a client takes it from a
        # pool would look like a lost response.
        config.keep_alive_timeout = 3_600
        config.errorlog = config.accesslog = None

        async def stopped():
            await asyncio.get_running_loop().run_in_executor(None, self._stop.wait)

        asyncio.run(serve(app, config, shutdown_trigger=stopped))
