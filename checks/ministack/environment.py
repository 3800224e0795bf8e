"""The address and the settings of the emulator in this process. ministack reads them on import, so
import this module first."""

import os
import socket

REGION = "us-east-1"
ACCOUNT = "000000000000"

# A port that no process listened on a moment ago.
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
URL = f"http://127.0.0.1:{PORT}"

os.environ.update(
    AUTH="true",
    AWS_DEFAULT_REGION=REGION,
    AWS_ENDPOINT_URL=URL,
    GATEWAY_PORT=str(PORT),
    MINISTACK_HOST="localhost",
    LAMBDA_EXECUTOR="local",
    PERSIST_STATE="0",
    SFTP_ENABLED="0",
    IOT_MTLS_ENABLED="0",
    # If ministack finds a Docker socket, it removes the containers of other ministacks.
    DOCKER_HOST="unix:///nonexistent",
    LOG_LEVEL="CRITICAL",
)
