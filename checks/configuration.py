"""Compares docs/configuration.md with the functions' variables, the template's parameters and
settings, and the options of `local serve`; the settings with the ranges of their variables; and
docs/operations.md with the template's alarms and the functions' metrics.

Usage: configuration.py LOCAL_BINARY

`local variables --json` lists the variables, with their defaults and allowed values, from the tables
by which the functions read them. The last column of each table is text. It must not be empty.
"""

import json
import re
import sys
from pathlib import Path

from expect import Report, output
from rules.template import NESTED, ROOT, load, metrics_written, names_of_alarms, of_type

OPTION = re.compile(r"^\s+(?:-\w, )?(--[\w-]+)(?: (<\w+>))?\s+(.*?)(?: \[default: (.*)\])?$")


class Templates:
    """template.yaml, and its nested templates by the resource that nests them."""

    def __init__(self):
        self.root = load(ROOT / "template.yaml")
        self.parameters = self.root["Parameters"]
        self.settings = self.root["Mappings"]["Settings"]
        self.nested = {
            name: load(ROOT / body["Properties"]["Location"])
            for name, body in of_type(self.root, NESTED).items()
        }
        self.allowed = self.nested["CheckedSettings"]["Parameters"]

    def setting(self, name):
        """Returns what a parameter or setting allows, and its values."""
        body = self.parameters.get(name) or self.allowed.get(name, {})
        return body, self.settings.get(name, {"": body.get("Default", "")}).values()


def tables_of(document):
    """Returns the rows of the tables beneath each heading of the second level."""
    sections = {}
    heading = None
    for line in document.read_text(encoding="utf-8").split("\n"):
        if line.startswith("## "):
            heading = line[3:].strip()
            sections[heading] = []
        # A table's first row names its columns. Every row of content begins with a backtick.
        elif line.startswith("| `") and heading:
            cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
            sections[heading].append([cell.strip().replace("\\|", "|") for cell in cells])
    return sections


def code(text):
    return f"`{text}`" if text != "" else "empty"


def allowed_by(parameter):
    if "AllowedValues" in parameter:
        return ", ".join(code(each) for each in parameter["AllowedValues"])
    if parameter["Type"] == "Number":
        least, most = parameter["MinValue"], parameter.get("MaxValue")
        return f"{least} or more" if most is None else f"{least} to {most}"
    description = parameter["ConstraintDescription"]
    return description.removeprefix("must be ").removeprefix("must ").rstrip(".")


def refused(parameter, used, allowed):
    """Returns what a setting allows or has, and its variable does not, if that has a range or a list."""
    values = {*used, *parameter.get("AllowedValues", ())} - {""}
    if span := re.search(r"(0, or )?a whole number from (\d+) to (\d+)$", allowed):
        if "MinValue" in parameter:
            values |= {parameter["MinValue"], parameter.get("MaxValue", 10**12)}
        return {n for n in map(int, values) if not int(span[2]) <= n <= int(span[3]) and (n or not span[1])}
    named = re.split(", | or ", allowed)
    return set() if " " in "".join(named) else values.difference(named)


def variables(program):
    tables = {}
    for row in json.loads(output(program, "variables", "--json")):
        default = "required" if row["default"] is None else code(row["default"])
        heading = f"Additional variables of the {row['read_by']}"
        heading = "All functions" if row["read_by"] == "all functions" else heading
        tables.setdefault(heading, {})[code(row["name"])] = (default, row["allowed"])
    return tables


def settings(templates):
    """Returns the value of the profile standard, and those of the others if they differ."""
    rows = {}
    for name, row in templates.settings.items():
        usual = row["standard"]
        others = [f"{each} {code(value)}" for each, value in row.items() if value != usual]
        rows[code(name)] = ", ".join([code(usual), *others]), allowed_by(templates.allowed[name])
    return rows


def options(program):
    found = (OPTION.match(line) for line in output(program, "serve", "-h").split("\n"))
    return {
        code(f"{option[1]} {option[2] or ''}".strip()): (code(option[4]) if option[4] else "none",)
        for option in found
        if option and option[1] not in ("--help", "--version")
    }


def compare(wanted, rows):
    """Returns the faults of rows: a name, the wanted cells, and a meaning."""
    named = [row[0] for row in rows]
    yield from (f"{name} is missing" for name in sorted(wanted.keys() - {*named}))
    yield from (f"{name} is documented, and does not exist" for name in sorted({*named} - wanted.keys()))
    for name in sorted({name for name in named if named.count(name) > 1}):
        yield f"{name} is documented twice"
    for name, *cells, meaning in rows:
        if name in wanted and tuple(cells) != wanted[name]:
            documented, expected = " | ".join(cells), " | ".join(wanted[name])
            yield f"{name} is documented with {documented}, and has {expected}"
        if not meaning:
            yield f"{name} is not explained"


def alarms(templates):
    """Returns the alarms' names, without the parts for the stack and the version."""
    names = [name for each in templates.nested.values() for name in names_of_alarms(each).values()]
    affixes = re.compile(r"^\$\{Stack\}-|-\$\{\w+\.Version\.Version\}$")
    return {code(affixes.sub("", name)) for name in names}


def findings(program):
    """Returns the name of each comparison, how many rows it has, and its faults."""
    templates = Templates()
    document = ROOT / "docs/configuration.md"
    documented = tables_of(document)
    known = {"the stack itself", "not set by the template"}
    known |= set(map(code, templates.parameters.keys() | templates.settings.keys()))
    for heading, wanted in variables(program).items():
        rows = documented.get(heading, [])
        faults = list(compare(wanted, [[*cells, meaning] for *cells, _, meaning in rows]))
        faults += [f"{row[0]} is set by {row[-2]}, which does not exist" for row in rows if row[-2] not in known]
        for name, _, allowed, by, _ in rows:
            wrong = refused(*templates.setting(by.strip("`")), allowed)
            faults += [f"{name} does not allow {value}, and {by} does" for value in wrong]
        yield f"{document.name}, {heading}", len(wanted), faults
    parameters = templates.parameters.items()
    others = {
        "Parameters of the template": {
            code(name): (code(body["Default"]), allowed_by(body)) for name, body in parameters
        },
        "Settings of the template": settings(templates),
        "Options of `local serve`": options(program),
    }
    for heading, wanted in others.items():
        yield f"{document.name}, {heading}", len(wanted), list(compare(wanted, documented.get(heading, [])))

    operations = ROOT / "docs/operations.md"
    documented = tables_of(operations)
    metrics = set(map(code, metrics_written("shared/src", "functions", "endpoint/src")))
    for heading, wanted in {"Alarms": alarms(templates), "Metrics": metrics}.items():
        rows = [
            (name, row[-1])
            for row in documented.get(heading, [])
            # A row may have two names, and a metric its dimension.
            for name in re.findall(r"`[\w-]+`", row[0].split(", by ")[0])
        ]
        yield f"{operations.name}, {heading}", len(wanted), list(compare(dict.fromkeys(wanted, ()), rows))


def main():
    program = Path(sys.argv[1]).resolve()
    report = Report()
    for name, rows, faults in findings(program):
        report.none(f"{name}: {rows}", "\n".join(faults))
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
