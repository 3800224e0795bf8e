"""Parses the `aws` and `sam` commands of the documents that checks/documentation.py does not run.

Usage: commands.py [AWS_CLI_2]

These commands need an account, or another check runs them against an emulator. The AWS CLI 2 (the
given program) and SAM must accept each, by their own parsers. bash itself finds the commands: it
runs the blocks of a document, with functions that record in place of `aws` and `sam` and with no
other program, so that words are quoted, expanded and read from files as on a user's machine. The
AWS CLI accepts a command if it reports that nothing listens where it would send its request. SAM's
parser is called without its command.
"""

import collections
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import click
import documentation
from expect import Report, Wrong, run
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

ENVIRONMENT = documentation.NO_ACCOUNT | {
    "AWS_ACCESS_KEY_ID": "fake",
    "AWS_SECRET_ACCESS_KEY": "fake",
    "AWS_DEFAULT_REGION": "us-east-1",
    # Nothing listens there. The proxy is for requests that go elsewhere.
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "HTTPS_PROXY": "http://127.0.0.1:1",
    "AWS_MAX_ATTEMPTS": "1",
    "HOME": "/nonexistent",
}
# Each parser must refuse these, or it is not asked.
BROKEN = {"aws": "lambda invoke --function-name function", "sam": "deploy --no-such-option"}


def by_aws(program, words):
    """Returns why the AWS CLI has sent no request, or None."""
    done = run(program, *words[1:], env=ENVIRONMENT)
    printed = done.stdout + done.stderr
    if re.search("Could not connect to the endpoint URL|Failed to connect to proxy URL", printed):
        return None
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    told = [line for line in lines if re.search("error|unknown|invalid|bad", line, re.I)]
    return " ".join((told or lines)[-2:]) or "it printed nothing"


def by_sam(words):
    try:
        with sam.make_context("sam", list(words[1:])) as context:
            name, command, rest = sam.resolve_command(context, [*context.protected_args, *context.args])
            command.make_context(name, rest, parent=context)
    except click.ClickException as error:
        return error.format_message()
    return None


def recorded(blocks, folder):
    """Returns the line of the block and the words of each `aws` and `sam` that bash calls."""
    record = pathlib.Path(folder) / "recorded"
    script = [RECORDER]
    for block in blocks:
        script.append(f"BLOCK={block.line}")
        script += [command for command, _ in block.commands()]
    environment = GIVEN | {"HOME": str(folder), "RECORDED": str(record)}
    options = {"cwd": pathlib.Path(folder) / "project", "env": environment, "timeout": PATIENCE}
    done = run("bash", "--norc", "--noprofile", "-c", "\n".join(script), **options)
    if "syntax error" in done.stderr:
        raise Wrong(f"bash: {done.stderr}")
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
        except (Wrong, subprocess.TimeoutExpired) as error:
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
            parsed = [words for words in lines if words[0] in parsers]
            for words, why in zip(parsed, pool.map(lambda words: parsers[words[0]](words), parsed)):
                if why:
                    yield f"the block of line {lines[words]}: {words[0]} refuses {' '.join(words)}\n  {why}"
                else:
                    counts[words[0]] += 1


def main():
    report, counts, parsers = Report(), collections.Counter(), {"sam": by_sam}
    for program in sys.argv[1:]:
        parsers["aws"] = partial(by_aws, os.path.abspath(program))
    for name, parse in parsers.items():
        report.check(f"{name} refuses {BROKEN[name]}", parse([name, *BROKEN[name].split()]))
    for document in documentation.DOCUMENTS:
        report.none(os.path.relpath(document, ROOT), "\n".join(check(document, parsers, counts)))
    for name, count in counts.items():
        report.note(f"{count} commands accepted by {name}")
    if "aws" not in parsers:
        report.note("not parsed by the AWS CLI 2: its package has a program for Linux on x86_64 only")
    report.check("commands were parsed", counts)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
