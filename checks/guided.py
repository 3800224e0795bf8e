"""Runs `sam deploy --guided` in a terminal, and presses Enter at every question."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

import functions
from botocore.exceptions import ClientError
from emulated import PATIENCE, ROOT, Stack, StackFailed

# The parameters that a deployment may ask for.
MOST_PARAMETERS = 11
# The stack name of samconfig.toml.
NAME = "dynamodb-write-sharding"

# The program's last output when it waits for input.
_QUESTION = re.compile(r"\n?[^\n]*(?:\[[^\]\n]*\]|\?|Name|Region) ?: ?$")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# Seconds without output after which a line that looks like a question counts as one.
_SILENCE = 0.4


class Guided:
    """A guided deployment: its questions in order, its output, and its exit status."""

    def __init__(self, questions, output, status):
        self.questions, self.output, self.status = questions, output, status

    @property
    def parameters(self):
        return [question for question in self.questions if question.startswith("Parameter ")]


def project(folder, build):
    """Makes a folder with the content that a user has after `sam build`."""
    folder.mkdir()
    shutil.copytree(build, folder / ".aws-sam" / "build", symlinks=True)
    shutil.copy(ROOT / "samconfig.toml", folder)
    return folder


def deploy(account, folder, *options):
    """Presses Enter until the program ends."""
    ours, theirs = pty.openpty()
    environment = account.environment() | {"TERM": "dumb", "COLUMNS": "200", "NO_COLOR": "1"}
    command = ["sam", "deploy", "--guided", *options]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    questions, output, since = [], "", ""
    until = time.monotonic() + 4 * PATIENCE
    try:
        while time.monotonic() < until:
            ready, _, _ = select.select([ours], [], [], _SILENCE)
            if ready:
                try:
                    text = os.read(ours, 65_536).decode("utf-8", errors="replace")
                except OSError:
                    break
                if not text:
                    break
                text = _COLOURS.sub("", text).replace("\r", "")
                output, since = output + text, since + text
            elif _QUESTION.search(since):
                questions.append(since.rstrip("\n").rsplit("\n", 1)[-1].strip())
                since = ""
                os.write(ours, b"\n")
        else:
            raise TimeoutError(f"sam deploy --guided does not end; it printed {output[-2_000:]}")
        return Guided(questions, output, process.wait(PATIENCE))
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)


def check(report, world):
    """Presses Enter at every question, in an account with a high quota and in a new one."""
    for title, concurrency in (("an account", 1_000), ("a new account with ten concurrent executions", 10)):
        functions.QUOTA.concurrency = concurrency
        done = deploy(world.account, project(world.folder / f"guided-{concurrency}", world.template.parent))
        report.note(f"{len(done.questions)} questions, {len(done.parameters)} of them parameters")
        report.check(f"{title}: it asks for at most {MOST_PARAMETERS} parameters", len(done.parameters) <= MOST_PARAMETERS, done.parameters)
        stack = Stack(world.account, NAME)
        try:
            status = stack.describe()["StackStatus"]
        except ClientError as error:
            status = str(error)
        if not report.equal(f"{title}: sam deploy --guided, with Enter at every question", (done.status, status), (0, "CREATE_COMPLETE")):
            report.note(done.output[-3_000:])
            continue
        api = world.caller(stack)
        report.equal(f"{title}: a request succeeds", (api.put("guided", "a").status, api.get("guided", "a").status), (200, 200))
        world.clear()
    try:
        world.stack("reserving", {"ReserveShardScalerConcurrency": "true"})
        report.check("in a new account a reservation is refused", False, "it is not refused, so the checks above prove nothing")
    except StackFailed as failed:
        report.check("in a new account a reservation is refused", "UnreservedConcurrentExecution" in str(failed), failed)
    functions.QUOTA.concurrency = 1_000
