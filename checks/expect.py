"""What checks share: expectations, waiting, programs, and a report of what holds."""

import subprocess
import sys
import time

PATIENCE = 120


class Wrong(Exception):
    """A check failed. The message describes the difference."""


def expect(holds, *words):
    if not holds:
        raise Wrong(" ".join(str(word)[:800] for word in words))


def await_that(holds, what, patience=PATIENCE):
    """Calls `holds` until it returns a true value, and returns that value."""
    until = time.monotonic() + patience
    while not (found := holds()):
        expect(time.monotonic() < until, "not within", patience, "seconds:", what)
        time.sleep(0.05)
    return found


def run(*command, **options):
    """Runs a program, without input. Returns its exit code, and its output as text."""
    given = {"input": "", "capture_output": True, "text": True, "check": False}
    return subprocess.run([str(part) for part in command], **given | options)


def output(*command, **options):
    """Returns the standard output of a program, which must succeed."""
    done = run(*command, **options)
    if done.returncode:
        raise Wrong(f"{' '.join(map(str, command))} ends with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class Report:
    """Prints and counts the results, as they arrive."""

    def __init__(self):
        self.held, self.failed = 0, []
        self._began = self._since = time.monotonic()

    def check(self, what, holds, found=""):
        took, self._since = time.monotonic() - self._since, time.monotonic()
        if holds:
            self.held += 1
        else:
            self.failed.append(what)
        verdict, reason = ("ok   ", "") if holds else ("WRONG", f": {found}")
        print(f"{verdict}  {what} ({took:.1f} s){reason}", flush=True)
        return bool(holds)

    def equal(self, what, found, wanted):
        return self.check(what, found == wanted, f"{found!r}, not {wanted!r}")

    def none(self, what, wrong):
        return self.check(what, not wrong, wrong)

    def note(self, text):
        print(f"       {text}", flush=True)

    def end(self):
        """Prints the totals, and returns the exit code."""
        print(f"\n{self.held} ok, {len(self.failed)} wrong, in {time.monotonic() - self._began:.0f} s")
        for what in self.failed:
            print(f"WRONG  {what}", file=sys.stderr)
        return bool(self.failed)
