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
    <!-- figures vary -->       a number in the output may differ, except a separate 0
The check also covers links to files and headings.
"""

import collections
import os
import pathlib
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATIENCE = 240  # seconds for one command
START = 30  # and for the local edition to listen

# Replaces `cargo` in the documents' shell, so that nothing is built.
CARGO = """#!/bin/sh
case "$1 $2 $3 $4" in
  "run --bin local --" | "run -p adviser --" | "run --bin admin --") program=$3; shift 4 ;;
  *) echo "this check runs no cargo but 'cargo run --bin PROGRAM -- ...'" >&2; exit 1 ;;
esac
if [ "$1" = load ]; then set -- "$@" --url "http://127.0.0.1:$(cat {scratch}/api)"; fi
exec {programs}/"$program" "$@"
"""

FENCE = re.compile(r"^(\s*)```(.*)$")
COMMENT = re.compile(
    r"^\s*<!-- (not run: (?P<reason>.+)|run by (?P<by>\S+)|ends with (?P<status>[1-9]\d*)"
    r"|(?P<vary>figures vary)) -->\s*$"
)
LOCAL = re.compile(
    r"^(?P<set>(?:[A-Z_]+=\S+ )*)cargo run(?: --release)? --bin local(?: -- (?P<rest>.*))?$", re.S
)
EXAMPLE = re.compile(
    r"^cargo run (?P<which>-p dynamodb-write-sharding(?:-stream)? --example (?P<name>\w+))(?P<rest>(?: [^-].*)?)$"
)
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
# In a document these ports are the local edition's.
PORTS = {"api": 3000, "dynamodb": 8000, "endpoint": 8001}


class Wrong(Exception):
    """A fault of a document, or a difference in the output of a command."""


class Block:
    def __init__(self, line, text, mark):
        self.line, self.text, self.mark = line, text, mark

    def commands(self):
        """Returns each command with its documented output, or None if there is none."""
        for part in re.split(r"^\$ ", self.text, flags=re.M)[1:]:
            lines = part.rstrip("\n").split("\n")
            taken = 1
            while lines[taken - 1].endswith("\\") or (
                taken < len(lines) and lines[taken].startswith("> ")
            ):
                taken += 1
            command = "\n".join(line.removeprefix("> ") for line in lines[:taken])
            yield command, "\n".join(lines[taken:]) or None


def blocks_of(text):
    """Returns the console blocks of a document, each with the comment before it."""
    mark = body = None
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        fence = FENCE.match(line)
        if body is not None:
            if fence and not fence[2]:
                if language == "console":
                    if not any(each.startswith("$ ") for each in body):
                        raise Wrong(f"line {begun}: a console block without a command")
                    found.append(Block(begun, "\n".join(body), mark))
                elif mark:
                    raise Wrong(
                        f"line {begun}: a block of {language or 'no language'} is never run, and "
                        "needs no comment"
                    )
                mark = body = None
            else:
                body.append(line.removeprefix(indent))
        elif fence:
            indent, language, body, begun = fence[1], fence[2].strip(), [], number
            if language in ("sh", "bash", "shell"):
                raise Wrong(
                    f"line {number}: commands belong into a block of language console, not "
                    f"{language}"
                )
        elif comment := COMMENT.match(line):
            mark = comment
        elif line.strip():
            if mark:
                raise Wrong(f"line {number}: the comment before it belongs to no block")
    if body is not None:
        raise Wrong(f"line {begun}: the block has no end")
    return found


def pattern_of(shown, vary):
    """Returns a pattern that must match a whole output."""
    piece = figures_apart if vary else re.escape
    lines = []
    for line in shown.split("\n"):
        if line.strip() == "…":
            lines.append(r"(?:.*\n)*")
        else:
            lines.append(".*".join(map(piece, line.rstrip().split("…"))) + "[ ]*\n")
    return re.compile("".join(lines))


# The lengths of a table's lines and blanks depend on its figures.
FIGURE = re.compile(r"(?P<figure>\d[\d,.]*)|(?P<line>--+)|(?P<blanks> +)")


def figures_apart(text):
    """Returns a pattern of the text with arbitrary figures."""
    pattern, done = "", 0
    for match in FIGURE.finditer(text):
        pattern += re.escape(text[done : match.start()])
        done = match.end()
        pattern += (
            "0"
            if match[0] == "0"
            else {"figure": r"\d[\d,.]*", "line": "--+", "blanks": " +"}[match.lastgroup]
        )
    return pattern + re.escape(text[done:])


def copy_project(folder):
    """Makes a folder look like the project's root."""
    for entry in ROOT.iterdir():
        if entry.name not in ("docs", "target", ".git", ".tools", ".aws-sam"):
            (folder / entry.name).symlink_to(entry)
    shutil.copytree(ROOT / "docs", folder / "docs")


def documents():
    return [
        *sorted(ROOT.glob("*.md")),
        ROOT / "shared/README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]


class Shell:
    """A bash process for a document, with at most one local edition."""

    END = "\036"

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, pathlib.Path(folder)
        self.ports = {}
        self.serving = None
        self.scratch = tempfile.TemporaryDirectory()
        cargo = pathlib.Path(self.scratch.name) / "bin/cargo"
        cargo.parent.mkdir()
        cargo.write_text(
            CARGO.format(
                scratch=shlex.quote(self.scratch.name),
                programs=shlex.quote(os.path.dirname(binary)),
            ),
            encoding="utf-8",
        )
        cargo.chmod(0o755)
        copy_project(self.folder)
        # Nothing here may reach an AWS account, whatever the caller has configured, nor read the
        # configuration of a function.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "SAM_", "OTEL_", "RUST_LOG"))
        }
        environment |= {
            "PATH": os.pathsep.join(
                [str(cargo.parent), str(ROOT / ".tools/python/bin"), os.environ["PATH"]]
            ),
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_PAGER": "",
            "SAM_CLI_TELEMETRY": "0",
            "HISTFILE": "/dev/null",
            "NO_COLOR": "1",
        }
        self.bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def close(self):
        # The group contains the remaining processes of its commands, including the local edition.
        try:
            os.killpg(self.bash.pid, signal.SIGTERM)
            self.bash.stdin.close()
            self.bash.wait(10)
        except (ProcessLookupError, BrokenPipeError):
            pass
        except subprocess.TimeoutExpired:
            os.killpg(self.bash.pid, signal.SIGKILL)
            self.bash.wait()
        self.scratch.cleanup()

    def run(self, command, patience=PATIENCE, status="0"):
        """Returns the output of the command, with the documents' ports."""
        file = pathlib.Path(self.scratch.name) / "command"
        file.write_text(command + "\n", encoding="utf-8")
        line = f". {shlex.quote(str(file))} </dev/null; printf '\\n{self.END}%s\\n' $?\n"
        self.bash.stdin.write(line.encode())
        self.bash.stdin.flush()
        printed, until = b"", time.monotonic() + patience
        end = re.compile(rb"\n" + self.END.encode() + rb"(\d+)\n$")
        with selectors.DefaultSelector() as selector:
            selector.register(self.bash.stdout, selectors.EVENT_READ)
            while not (ended := end.search(printed)):
                if not selector.select(max(0, until - time.monotonic())):
                    raise Wrong(
                        f"no end within {patience} seconds; printed so "
                        f"far:\n{printed.decode(errors='replace')}"
                    )
                got = os.read(self.bash.stdout.fileno(), 1 << 16)
                if not got:
                    raise Wrong(f"it ended the shell:\n{printed.decode(errors='replace')}")
                printed += got
        output = self.with_documents_ports(printed[: ended.start()].decode(errors="replace"))
        if ended[1].decode() != status:
            raise Wrong(f"it ends with {ended[1].decode()}:\n{output}")
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
        if local and serves(local["rest"]) and status != "0":
            rest = f"serve --port 0 --dynamodb-port 0 --endpoint-port 0 {(local['rest'] or '').removeprefix('serve')}"
            return self.run(f"{local['set']}{shlex.quote(self.binary)} {rest}", START, status)
        if local and serves(local["rest"]):
            return self.serve(local["set"], local["rest"] or "serve")
        if any(f":{port}" in command for port in PORTS.values()) and not self.serving:
            raise Wrong("it needs the local edition, which no earlier command has started")
        if example := EXAMPLE.match(command):
            target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
            built = target / "debug/examples" / example["name"]
            if not built.exists():
                manifest = ["--manifest-path", str(ROOT / "Cargo.toml")]
                subprocess.run(
                    ["cargo", "build", "--locked", "--quiet", *manifest, *example["which"].split()],
                    check=True,
                )
            command = shlex.quote(str(built)) + example["rest"]
        elif command.startswith(("checks/", "sam ")):
            raise Wrong("this check cannot run it; add a comment before the block that names the check that does")
        return self.run(self.with_free_ports(command), status=status)

    def serve(self, variables, options):
        """Starts the local edition, instead of an earlier one, and returns its output until it
        listens."""
        if self.serving:
            self.run(f"kill {self.serving}; wait {self.serving} || true")
        self.ports = {name: free_port() for name in PORTS}
        (pathlib.Path(self.scratch.name) / "api").write_text(
            str(self.ports["api"]), encoding="utf-8"
        )
        log = pathlib.Path(self.scratch.name) / "serve.log"
        ports = f"--port {self.ports['api']} --dynamodb-port {self.ports['dynamodb']} --endpoint-port {self.ports['endpoint']}"
        options = " ".join(part for part in options.split() if part != "serve")
        started = self.run(
            f"{variables}{shlex.quote(self.binary)} serve {ports} {options} "
            f">{shlex.quote(str(log))} 2>&1 & echo $!"
        )
        self.serving = int(started.split()[-1])
        until = time.monotonic() + START
        while "stop with" not in (
            printed := log.read_text(encoding="utf-8") if log.exists() else ""
        ):
            if time.monotonic() > until or not pathlib.Path(f"/proc/{self.serving}").exists():
                raise Wrong(f"it does not serve:\n{printed}")
            time.sleep(0.05)
        return self.with_documents_ports(printed)


def serves(rest):
    words = (rest or "serve").split()
    return words[0] == "serve" or (
        words[0].startswith("--") and not {"--help", "--version"} & set(words)
    )


def compare(shown, printed, vary):
    if shown is not None and not pattern_of(shown, vary).fullmatch(printed.rstrip("\n") + "\n"):
        raise Wrong(f"it prints\n{indented(printed)}\nand not\n{indented(shown)}")


def indented(text):
    return "\n".join("    | " + line for line in text.rstrip("\n").split("\n"))


def runner_of(by, command, document):
    """Checks that the named file is part of .ci/run, and that it contains the command or reads the
    document."""
    guards = (ROOT / ".ci/run").read_text(encoding="utf-8")
    guards += (ROOT / "checks/foreign").read_text(encoding="utf-8")
    if by != ".ci/run" and by not in guards:
        raise Wrong(f"{by} is not part of .ci/run")
    words = command.split()
    if words[0] == "export":
        return
    named = " ".join(words[: 1 if words[0].startswith("checks/") else 2])
    runner = (ROOT / by).read_text(encoding="utf-8")
    if named not in runner and str(document.relative_to(ROOT)) not in runner:
        raise Wrong(f"{by} does not run {named}")


def anchor_of(heading):
    """Returns the anchor of a heading, as GitHub forms it."""
    text = re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors_of(text):
    prose = re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.S | re.M)
    return {anchor_of(heading) for heading in re.findall(r"^#+ (.*)$", prose, re.M)}


def broken_links(document, text):
    prose = re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.S | re.M)
    for target in LINK.findall(prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / urllib.parse.unquote(path)).resolve() if path else document
        if not file.exists():
            yield f"{target}: the file does not exist"
        elif (
            anchor
            and file.suffix == ".md"
            and anchor not in anchors_of(file.read_text(encoding="utf-8"))
        ):
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
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(binary, folder)
        try:
            for block in blocks:
                for command, shown in block.commands():
                    try:
                        if block.mark and block.mark["by"]:
                            runner_of(block.mark["by"], command, document)
                            counts[f"run by {block.mark['by']}"] += 1
                        elif block.mark and block.mark["reason"]:
                            counts[f"not run: {block.mark['reason']}"] += 1
                        else:
                            counts["run"] += 1
                            status, vary = (
                                (block.mark["status"], block.mark["vary"])
                                if block.mark
                                else (None, None)
                            )
                            compare(shown, shell.execute(command, status or "0"), vary)
                            counts["compared"] += shown is not None
                    except Wrong as wrong:
                        yield f"the block of line {block.line}: {command}\n  {wrong}"
        finally:
            shell.close()


def main():
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    given = [pathlib.Path(each).resolve() for each in sys.argv[2:]] or documents()
    failed, total = 0, collections.Counter()
    for document in given:
        counts, began = collections.Counter(), time.monotonic()
        for wrong in check(document, binary, counts):
            failed += 1
            print(f"WRONG {os.path.relpath(document, ROOT)}: {wrong}", flush=True)
        if counts and is_run(document):
            print(
                f"{os.path.relpath(document, ROOT)}: {counts['run']} commands run in "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
        total += counts
    print(f"{total['run']} commands were run, the output of {total['compared']} compared")
    for reason, count in sorted(total.items()):
        if reason not in ("run", "compared"):
            print(f"{count} {reason}")
    print(f"{failed} wrong")
    return 1 if failed or (any(map(is_run, given)) and not total["run"]) else 0


if __name__ == "__main__":
    sys.exit(main())
