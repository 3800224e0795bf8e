"""Where the emulator of this process listens, and what it is set to. ministack reads that when it
is imported: import this before."""

import os

from ports import free_port

REGION = "us-east-1"
ACCOUNT = "000000000000"

PORT = free_port()
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
    # It removes containers of other ministacks where it finds a Docker socket.
    DOCKER_HOST="unix:///nonexistent",
    LOG_LEVEL="CRITICAL",
)
