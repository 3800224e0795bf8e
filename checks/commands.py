"""Parses the `aws` and `sam` commands of the documents that checks/documentation.py does not run.

Usage: commands.py [--aws-2 PROGRAM] [DOCUMENT...]

These commands need an account, or another check runs them against an emulator. The AWS CLI 1, the
AWS CLI 2 (the given program) and SAM must accept each, by their own parsers. bash itself finds the
commands: it runs the blocks of a document, with functions that record in place of `aws` and `sam`
and with no other program, so that words are quoted, expanded and read from files as on a user's
machine. The two versions of the AWS CLI send their requests to a server of this check. A command of
which no request arrives was not accepted. SAM's parser is called without its command.
"""

import argparse
import base64
import collections
import contextlib
import http.server
import io
import itertools
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import click
import documentation
from awscli.clidriver import create_clidriver
from samcli.cli.main import cli as sam

ROOT = documentation.ROOT
PATIENCE = 20  # seconds for the blocks of one document

# Programs that are not found succeed, so that all commands of a list are reached. What `aws` prints
# is a name that is long enough, and also an item.
RECORDER = """
PATH=/nonexistent
record() { printf '%s\\0' "$#" "$@" >>"$RECORDED"; }
aws() { record "$BLOCK" aws "$@"; echo "{ }"; }
sam() { record "$BLOCK" sam "$@"; }
sed() { local line; while read -r line; do echo "$line"; done; }
date() { echo 1700000000; }
cd() { :; }
command_not_found_handle() { :; }
"""
# Variables that the documents expect.
GIVEN = {"STACK": "stack", "WHEN": "2026-11-20T09:59:00Z"}

# Nothing here may reach an AWS account, whatever the caller has configured.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "fake",
    "AWS_SECRET_ACCESS_KEY": "fake",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_MAX_ATTEMPTS": "1",
    "AWS_PAGER": "",
    "HOME": "/nonexistent",
    "SAM_CLI_TELEMETRY": "0",
}
# Each parser must refuse these, or it is not asked.
BROKEN = {
    "the AWS CLI 1": ["aws", "logs", "tail", "/aws/lambda/function"],
    "the AWS CLI 2": ["aws", "lambda", "invoke", "--function-name", "function"],
    "SAM": ["sam", "deploy", "--no-such-option"],
}


class Server:
    """Notes who has sent a request, and refuses it. It is also the proxy, for requests that go
    elsewhere."""

    def __enter__(self):
        arrived = self.arrived = set()

        class Handler(http.server.BaseHTTPRequestHandler):
            def refuse(self):
                proxied = self.headers.get("proxy-authorization", "").removeprefix("Basic ")
                user, _, _ = base64.b64decode(proxied).decode().partition(":")
                arrived.add(user or self.path.split("/")[1])
                self.send_response(400)
                self.send_header("content-length", "0")
                self.end_headers()

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_CONNECT = refuse

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def environment(self, name):
        here = f"127.0.0.1:{self.server.server_port}"
        return {"AWS_ENDPOINT_URL": f"http://{here}/{name}", "HTTPS_PROXY": f"http://{name}:x@{here}"}


class Parsers:
    """Each method returns why a parser refuses the words of a command, or None. The working
    directory is that of the command."""

    def __init__(self, server, aws_2):
        self.server, self.aws_2, self.numbers = server, aws_2, itertools.count()

    def of(self, program):
        if program == "sam":
            return {"SAM": self.by_sam}
        found = {"the AWS CLI 1": self.by_aws_1, "the AWS CLI 2": self.by_aws_2}
        return found if self.aws_2 else {"the AWS CLI 1": self.by_aws_1}

    def started(self, pool, parse, words):
        """Returns a function that returns the result. Only the AWS CLI 2 is a program of its own."""
        return pool.submit(parse, words).result if parse == self.by_aws_2 else partial(parse, words)

    def refused(self, name, printed):
        return None if name in self.server.arrived else reason(printed)

    def by_aws_1(self, words):
        name = f"1-{next(self.numbers)}"
        os.environ |= self.server.environment(name)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            # argparse ends a program.
            with contextlib.suppress(SystemExit):
                create_clidriver().main(list(words[1:]))
        return self.refused(name, printed.getvalue())

    def by_aws_2(self, words):
        name = f"2-{next(self.numbers)}"
        done = subprocess.run(
            [self.aws_2, *words[1:]],
            # Not os.environ, in which the other version puts its own data path.
            env=ENVIRONMENT | self.server.environment(name),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return self.refused(name, done.stdout + done.stderr)

    def by_sam(self, words):
        try:
            with sam.make_context("sam", list(words[1:])) as context:
                rest = [*context.protected_args, *context.args]
                name, command, rest = sam.resolve_command(context, rest)
                command.make_context(name, rest, parent=context)
        except click.ClickException as error:
            return error.format_message()
        return None


def reason(printed):
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    told = [line for line in lines if re.search("error|unknown|invalid|bad", line, re.I)]
    return " ".join((told or lines)[-2:])


def recorded(blocks, folder):
    """Returns the line of the block and the words of each `aws` and `sam` that bash calls."""
    record = pathlib.Path(folder) / "recorded"
    script = [RECORDER]
    for block in blocks:
        script.append(f"BLOCK={block.line}")
        script += [command for command, _ in block.commands()]
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", "\n".join(script)],
        cwd=pathlib.Path(folder) / "project",
        env=GIVEN | {"HOME": str(folder), "RECORDED": str(record)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if "syntax error" in done.stderr:
        raise documentation.Wrong(f"bash: {done.stderr}")
    found = record.read_bytes().decode().split("\0")[:-1] if record.exists() else []
    while found:
        count = int(found[0])
        yield int(found[1]), found[2 : count + 1]
        found = found[count + 1 :]


# A block with a command, as a reader sees it. Functions may be called by later blocks.
WRITTEN = re.compile(r"(?:^|[;&|({] *|\$\(|\b(?:do|then|until|while|if) )(?:aws|sam) [a-z]", re.M)


def check(document, parsers, counts):
    """Yields the faults of a document, and counts the commands that each parser has accepted."""
    with tempfile.TemporaryDirectory() as folder:
        project = pathlib.Path(folder) / "project"
        project.mkdir()
        documentation.copy_project(project)
        try:
            blocks = [
                block
                for block in documentation.blocks_of(document.read_text(encoding="utf-8"))
                if block.mark and (block.mark["reason"] or block.mark["by"])
            ]
            called = list(recorded(blocks, folder))
        except (documentation.Wrong, subprocess.TimeoutExpired) as error:
            yield str(error)
            return
        for block in blocks:
            written = "\n".join(command for command, _ in block.commands())
            calls = WRITTEN.search(written) and "() {" not in written
            if calls and block.line not in {line for line, _ in called}:
                yield f"the block of line {block.line}: bash calls none of its commands"
        lines = {}
        for line, words in called:
            lines.setdefault(tuple(words), line)
        with contextlib.chdir(project), ThreadPoolExecutor(os.cpu_count()) as pool:
            parses = [
                (words, parser, parsers.started(pool, parse, words))
                for words in lines
                for parser, parse in parsers.of(words[0]).items()
            ]
            for words, parser, refused in parses:
                if why := refused():
                    yield f"the block of line {lines[words]}: {parser} refuses {' '.join(words)}\n  {why}"
                else:
                    counts[parser] += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--aws-2", type=os.path.abspath)
    parser.add_argument("documents", nargs="*", type=lambda path: pathlib.Path(path).resolve())
    given = parser.parse_args()
    os.environ |= ENVIRONMENT
    logging.disable()
    failed, counts = 0, collections.Counter()
    with Server() as server:
        parsers = Parsers(server, given.aws_2)
        for name, words in BROKEN.items():
            parse = parsers.of(words[0]).get(name)
            if parse and not parse(words):
                failed += 1
                print(f"WRONG {name} accepts {' '.join(words)}", flush=True)
        for document in given.documents or documentation.documents():
            for wrong in check(document, parsers, counts):
                failed += 1
                print(f"WRONG {os.path.relpath(document, ROOT)}: {wrong}", flush=True)
    for name, count in counts.items():
        print(f"{count} commands accepted by {name}")
    if not given.aws_2:
        print("not parsed by the AWS CLI 2: its package has a program for Linux on x86_64 only")
    print(f"{failed} wrong")
    return 1 if failed or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
