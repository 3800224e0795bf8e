"""Runs the commands of README.md and docs/*.md over a local edition, and compares their output with
the documents. In the other documents (ARCHITECTURE.md, CONTRIBUTING.md, ...), whose commands build
and test, it checks only links and blocks.

Usage: documentation.py LOCAL_BINARY [DOCUMENT...]

A command follows `$ ` in a block of language `console`, with its continuation lines. Its output
follows the command. In an output, a line `…` stands for any number of lines, and `…` within a line
for any text. A block without an output may print anything. Every command must end with 0. The
commands of a document share one shell, in a temporary folder that looks like the project's root.
`cargo run --bin local` runs the given binary, and the other programs are beside it. A local edition
that serves uses free ports, which the check replaces by 3000 and 8000 in the output.

A comment before a block changes this:
    <!-- not run: REASON -->
    <!-- run by FILE -->        a check of .ci/run runs these commands
    <!-- ends with 1 -->        each command of the block must fail
    <!-- output varies -->      the output is an example
The check also covers links to files and headings.
"""

import collections
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import urllib.parse

from expect import Report, Wrong

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), ROOT / "shared/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PATIENCE = 240  # seconds for one command
START = 30  # and for the local edition to listen
# Nothing here may reach an AWS account, whatever the caller has configured.
NO_ACCOUNT = {
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_PAGER": "",
    "SAM_CLI_TELEMETRY": "0",
}

# Replaces `cargo` in the documents' shell, so that nothing is built.
CARGO = """#!/bin/sh
case "$1 $2 $3 $4" in
  "run --bin local --" | "run -p adviser --" | "run --bin admin --") program=$3; shift 4 ;;
  *) echo "this check runs no cargo but 'cargo run --bin PROGRAM -- ...'" >&2; exit 1 ;;
esac
if [ "$1" = load ]; then set -- "$@" --url "http://127.0.0.1:$(cat {scratch}/api)"; fi
exec {programs}/"$program" "$@"
"""

# A block, perhaps with a comment before it.
FENCED = re.compile(
    r"^(?:(?P<comment>[ ]*<!-- .* -->)\s*\n)?(?P<fence> *```)(?P<language>.*)\n(?P<body>(?:.*\n)*?) *```[ ]*$", re.M
)
COMMENT = re.compile(
    r"^\s*<!-- (not run: (?P<reason>.+)|run by (?P<by>\S+)|ends with (?P<status>[1-9]\d*)"
    r"|(?P<vary>output varies)) -->\s*$",
    re.M,
)
LOCAL = re.compile(
    r"^(?P<set>(?:[A-Z_]+=\S+ )*)cargo run(?: --release)? --bin local(?: -- (?P<rest>.*))?$", re.S
)
EXAMPLE = re.compile(
    r"^(?P<set>(?:[A-Z_]+=\S+ )*)cargo run (?P<which>-p dynamodb-write-sharding(?:-stream)? --example (?P<name>\w+))"
    r"(?P<rest>(?: [^-].*)?)$"
)
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
# In a document these ports are the local edition's.
PORTS = {"API": 3000, "DynamoDB": 8000, "endpoint": 8001}


class Block:
    def __init__(self, line, text, mark):
        self.line, self.text, self.mark = line, text, mark

    def commands(self):
        """Returns each command with its documented output, or None if there is none."""
        for part in re.split(r"^\$ ", self.text, flags=re.M)[1:]:
            lines = part.rstrip("\n").split("\n")
            taken = 1
            while lines[taken - 1].endswith("\\") or (taken < len(lines) and lines[taken].startswith("> ")):
                taken += 1
            command = "\n".join(line.removeprefix("> ") for line in lines[:taken])
            yield command, "\n".join(lines[taken:]) or None


def blocks_of(text):
    """Returns the console blocks of a document, each with the comment before it."""
    found = []
    for block in FENCED.finditer(text):
        line, language = text.count("\n", 0, block.start("fence")) + 1, block["language"].strip()
        mark, body = COMMENT.match(block["comment"] or ""), textwrap.dedent(block["body"]).removesuffix("\n")
        if language in ("sh", "bash", "shell"):
            raise Wrong(f"line {line}: commands belong into a block of language console, not {language}")
        if language == "console":
            if not re.search(r"^\$ ", body, re.M):
                raise Wrong(f"line {line}: a console block without a command")
            found.append(Block(line, body, mark))
        elif mark:
            raise Wrong(f"line {line}: a block of {language or 'no language'} is never run, and needs no comment")
    if stray := COMMENT.search(prose := prose_of(text)) or re.search("^ *```.*", prose, re.M):
        raise Wrong(f"it belongs to no block, or the block has no end: {stray[0].strip()}")
    return found


def prose_of(text):
    return FENCED.sub("", text)


def pattern_of(shown):
    """Returns a pattern that must match a whole output."""

    def line_of(line):
        return r"(?:.*\n)*" if line.strip() == "…" else ".*".join(map(re.escape, line.rstrip().split("…"))) + "[ ]*\n"

    return re.compile("".join(map(line_of, shown.split("\n"))))


def copy_project(folder):
    """Makes a folder look like the project's root."""
    for entry in ROOT.iterdir():
        if entry.name not in ("docs", "target", ".git", ".tools", ".aws-sam"):
            (folder / entry.name).symlink_to(entry)
    shutil.copytree(ROOT / "docs", folder / "docs")


class Shell:
    """A bash process for a document, with at most one local edition."""

    END = "\036"

    def __init__(self, binary, folder):
        self.binary, self.folder, self.ports, self.serving = binary, pathlib.Path(folder), {}, None
        self.temporary = tempfile.TemporaryDirectory()
        self.scratch = pathlib.Path(self.temporary.name)
        cargo = self.scratch / "bin/cargo"
        cargo.parent.mkdir()
        places = {"scratch": shlex.quote(str(self.scratch)), "programs": shlex.quote(os.path.dirname(binary))}
        cargo.write_text(CARGO.format(**places), encoding="utf-8")
        cargo.chmod(0o755)
        copy_project(self.folder)
        # Nor may it read the configuration of a function.
        private = ("AWS_", "SAM_", "RUST_LOG")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(private)}
        environment |= NO_ACCOUNT | {
            "PATH": os.pathsep.join([str(cargo.parent), str(ROOT / ".tools/python/bin"), os.environ["PATH"]]),
            "HISTFILE": "/dev/null",
            "NO_COLOR": "1",
        }
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        command, texts = ["bash", "--norc", "--noprofile"], {"text": True, "errors": "replace"}
        self.bash = subprocess.Popen(
            command, cwd=self.folder, env=environment, start_new_session=True, **pipes, **texts
        )

    def stop(self, how=signal.SIGKILL):
        # The group contains the remaining processes of its commands, including the local edition.
        os.killpg(self.bash.pid, how)

    def close(self):
        try:
            self.stop(signal.SIGTERM)
            self.bash.communicate(timeout=10)
        except (ProcessLookupError, BrokenPipeError):
            pass
        except subprocess.TimeoutExpired:
            self.stop()
            self.bash.wait()
        self.temporary.cleanup()

    def run(self, command, patience=PATIENCE, status="0"):
        """Returns the output of the command, with the documents' ports."""
        file, printed, ended = self.scratch / "command", "", None
        file.write_text(command + "\n", encoding="utf-8")
        timer = threading.Timer(patience, self.stop)
        timer.start()
        self.bash.stdin.write(f". {shlex.quote(str(file))} </dev/null; printf '\\n{self.END}%s\\n' $?\n")
        self.bash.stdin.flush()
        for line in self.bash.stdout:
            if line.startswith(self.END):
                ended = line.strip(f"{self.END}\n")
                break
            printed += line
        timer.cancel()
        if ended is None:
            raise Wrong(f"it ended the shell, or takes more than {patience} seconds:\n{printed}")
        output = self.with_documents_ports(printed.removesuffix("\n"))
        if ended != status:
            raise Wrong(f"it ends with {ended}:\n{output}")
        return output

    def with_documents_ports(self, text):
        for name, port in self.ports.items():
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{PORTS[name]}")
        return text

    def with_free_ports(self, text):
        for name, port in self.ports.items():
            text = re.sub(rf"(127\.0\.0\.1|localhost):{PORTS[name]}\b", f"127.0.0.1:{port}", text)
        return text

    def execute(self, command, status):
        """Runs a command of the documents."""
        local = LOCAL.match(command)
        if local and serves(local["rest"]) and status == "0":
            return self.serve(local["set"], local["rest"] or "serve")
        if any(f":{port}" in command for port in PORTS.values()) and not self.serving:
            raise Wrong("it needs the local edition, which no earlier command has started")
        if example := EXAMPLE.match(command):
            target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
            built = target / "debug/examples" / example["name"]
            if not built.exists():
                build = ["cargo", "build", "--locked", "--quiet", "--manifest-path", str(ROOT / "Cargo.toml")]
                subprocess.run([*build, *example["which"].split()], check=True)
            command = example["set"] + shlex.quote(str(built)) + example["rest"]
        elif command.startswith(("checks/", "sam ")):
            raise Wrong("this check cannot run it; add a comment before the block that names the check that does")
        return self.run(self.with_free_ports(command), status=status)

    def serve(self, variables, options):
        """Starts the local edition, instead of an earlier one, and returns its output until it
        listens."""
        if self.serving:
            self.run(f"kill {self.serving}; wait {self.serving} || true")
        log, self.ports = self.scratch / "serve.log", {}
        log.unlink(missing_ok=True)  # It may have the ports of an earlier one.
        command = f"{variables}{shlex.quote(self.binary)} serve --port 0 --dynamodb-port 0 --endpoint-port 0 "
        command += options.removeprefix("serve")
        started = self.run(f"{command} >{shlex.quote(str(log))} 2>&1 & echo $!")
        self.serving, until = int(started.split()[-1]), time.monotonic() + START
        while "stop with" not in (printed := log.read_text(encoding="utf-8") if log.exists() else ""):
            if time.monotonic() > until or not pathlib.Path(f"/proc/{self.serving}").exists():
                raise Wrong(f"it does not serve:\n{printed}")
            time.sleep(0.05)
        self.ports = dict(re.findall(r"^(\w+) +http://127\.0\.0\.1:(\d+)\b(?!/)", printed, re.M))
        (self.scratch / "api").write_text(self.ports["API"], encoding="utf-8")
        return self.with_documents_ports(printed)


def serves(rest):
    words = (rest or "serve").split()
    return words[0] == "serve" or (words[0].startswith("--") and not {"--help", "--version"} & set(words))


def compare(shown, printed):
    if not pattern_of(shown).fullmatch(printed.rstrip("\n") + "\n"):
        raise Wrong(f"it prints\n{indented(printed)}\nand not\n{indented(shown)}")


def indented(text):
    return textwrap.indent(text.rstrip("\n"), "    | ", lambda line: True)


def anchors_of(text):
    """Returns the anchors of the headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.*)$", prose_of(text), re.M)
    texts = (re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


def broken_links(document, text):
    for target in LINK.findall(prose_of(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / urllib.parse.unquote(path)).resolve() if path else document
        if not file.exists():
            yield f"{target}: the file does not exist"
        elif anchor and file.suffix == ".md" and anchor not in anchors_of(file.read_text(encoding="utf-8")):
            yield f"{target}: {file.name} has no such heading"


def is_run(document):
    """Returns whether the check runs the commands of a document."""
    return document == ROOT / "README.md" or ROOT / "docs" in document.parents


def check(document, binary, counts):
    """Yields the faults of a document, and counts the commands that ran."""
    text = document.read_text(encoding="utf-8")
    yield from broken_links(document, text)
    try:
        blocks = blocks_of(text)
    except Wrong as wrong:
        yield str(wrong)
        return
    if not is_run(document):
        counts["documents of which only links and blocks were checked"] += 1
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Shell(binary, folder)) as shell:
        for block, (command, shown) in ((each, pair) for each in blocks for pair in each.commands()):
            mark = block.mark.groupdict() if block.mark else collections.defaultdict(str)
            try:
                if mark["by"]:
                    guards = (ROOT / ".ci/run").read_text() + (ROOT / "checks/foreign").read_text()
                    if mark["by"] not in (".ci/run", *guards.split()):
                        raise Wrong(f"{mark['by']} is not part of .ci/run")
                    counts[f"run by {mark['by']}"] += 1
                elif mark["reason"]:
                    counts[f"not run: {mark['reason']}"] += 1
                else:
                    counts["commands run"] += 1
                    printed = shell.execute(command, mark["status"] or "0")
                    if shown is not None and not mark["vary"]:
                        compare(shown, printed)
                        counts["outputs compared"] += 1
            except Wrong as wrong:
                yield f"the block of line {block.line}: {command}\n  {wrong}"


def main():
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    given = [pathlib.Path(each).resolve() for each in sys.argv[2:]] or DOCUMENTS
    report, counts = Report(), collections.Counter()
    for document in given:
        report.none(os.path.relpath(document, ROOT), "\n".join(check(document, binary, counts)))
    if any(map(is_run, given)):
        report.check("commands were run", counts["commands run"])
    for what, count in sorted(counts.items()):
        report.note(f"{count} {what}")
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
