"""Shows that each rule of checks/rules can fail: breaks the templates as checks/mutations.yaml says,
and expects the rule's finding, and none in the templates as they are."""

import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import yaml
from cfnlint.helpers import load_plugins
from expect import Report
from rules.template import ROOT

RULES = load_plugins(ROOT / "checks/rules")


def copied(folder):
    shutil.copy(ROOT / "template.yaml", folder)
    shutil.copytree(ROOT / "templates", folder / "templates", dirs_exist_ok=True)
    return {path.name: path for path in (folder / "template.yaml", *folder.glob("templates/*.yaml"))}


def finds(rule, paths):
    return any(rule.match(SimpleNamespace(filename=str(path))) for path in paths.values())


def main():
    cases = yaml.safe_load((ROOT / "checks/mutations.yaml").read_text(encoding="utf-8"))
    report = Report()
    with tempfile.TemporaryDirectory() as scratch:
        paths = copied(Path(scratch))
        for rule in RULES:
            changes, wrong = cases.get(rule.id, []), []
            if finds(rule, paths) or not changes:
                wrong.append("it has a finding in the templates as they are, or no mutation")
            for change in changes:
                text = paths[change["in"]].read_text(encoding="utf-8")
                paths[change["in"]].write_text(text.replace(change["was"], change["is"], 1), encoding="utf-8")
                if change["was"] not in text:
                    wrong.append(f"{change['in']} does not contain {change['was']!r} any more")
                elif not finds(rule, paths):
                    wrong.append(f"no finding with {change['is']!r} for {change['was']!r} in {change['in']}")
                paths[change["in"]].write_text(text, encoding="utf-8")
            report.none(f"{rule.id}: {len(changes)} broken templates", wrong)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
