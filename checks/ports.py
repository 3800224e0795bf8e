"""Free ports of this machine."""

import socket


def free_port():
    """Returns a port that no process listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
