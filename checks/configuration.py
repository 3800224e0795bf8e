"""Compares docs/configuration.md with the functions' variables, the template's parameters and
settings, and the options of `local serve`. Compares docs/operations.md with the template's alarms
and the functions' metrics, and the number of parameters in docs/tutorial.md with the template.

Usage: configuration.py [LOCAL_BINARY]. Without the program, cargo builds it.

`local variables --json` lists the variables, with their defaults and allowed values, from the tables
by which the functions read them. A setting of the template must offer no value that its variable
does not accept. The last column of each table is text. It must not be empty.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from rules.template import (
    FUNCTION,
    NESTED,
    ROOT,
    conditions_behind,
    load,
    metrics_written,
    names_of_alarms,
    of_type,
    references,
)

# The attribute that the custom resource Configuration computes from its property `LargestOf`.
LARGEST = {"Fn::GetAtt": ["Configuration", "Largest"]}
OPTION = re.compile(r"^\s+(?:-\w, )?(--[\w-]+)(?: (<\w+>))?\s+(.*?)(?: \[default: (.*)\])?$")
# Variables that are read outside the configuration. The document mentions them, but not in a table.
DIRECT = re.compile(r'env::var(?:_os)?\(\s*"([A-Z_]+)"')


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


def output(program, *arguments):
    command = [*program, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def set_by(templates):
    """Returns the parameter or setting of each variable, if it has one."""
    root, nested = templates.root, templates.nested["Functions"]
    handed = root["Resources"]["Functions"]["Properties"]["Parameters"]
    largest_of = nested["Resources"]["Configuration"]["Properties"]["LargestOf"]
    functions = [body["Properties"] for body in of_type(nested, FUNCTION).values()]
    askable = templates.parameters.keys() - {"Profile"}
    rows = {}
    for function in [nested["Globals"]["Function"], *functions]:
        for name, value in function.get("Environment", {}).get("Variables", {}).items():
            value = largest_of if value == LARGEST else value
            # The innermost condition comes first, because the others only restrict it.
            conditions = [nested["Conditions"][each] for each in conditions_behind(nested, value)]
            parts = [value, *reversed(conditions)]
            given = handed[next(each for each in references(parts) if each in handed)]
            sources = settings_of(given)
            sources += [each for each in references(given) if each in askable]
            for condition in conditions_behind(root, given):
                sources += settings_of(root["Conditions"][condition])
            rows[name] = code(sources[0]) if sources else "the stack itself"
    return rows


def settings_of(value):
    if isinstance(value, dict):
        own = [value["Fn::FindInMap"][1]] if "Fn::FindInMap" in value else []
        return own + [each for member in value.values() for each in settings_of(member)]
    return [each for part in value for each in settings_of(part)] if isinstance(value, list) else []


def allowed_by(parameter):
    if "AllowedValues" in parameter:
        return ", ".join(code(each) for each in parameter["AllowedValues"])
    if parameter["Type"] == "Number":
        least, most = parameter["MinValue"], parameter.get("MaxValue")
        return f"{least} or more" if most is None else f"{least} to {most}"
    description = parameter["ConstraintDescription"]
    return description.removeprefix("must be ").removeprefix("must ").rstrip(".")


def variables(program, templates):
    sources = set_by(templates)
    tables = {}
    for row in json.loads(output(program, "variables", "--json")):
        default = "required" if row["default"] is None else code(row["default"])
        source = sources.get(row["name"], "not set by the template")
        heading = f"Additional variables of the {row['read_by']}"
        heading = "All functions" if row["read_by"] == "all functions" else heading
        tables.setdefault(heading, {})[code(row["name"])] = (default, row["allowed"], source)
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
    """Returns the faults of the tables beneath a heading."""
    named = [row[0] for row in rows]
    yield from unequal(set(wanted), set(named))
    for name in sorted({name for name in named if named.count(name) > 1}):
        yield f"{name} is documented twice"
    for name, *cells, meaning in rows:
        if name in wanted and tuple(cells) != wanted[name]:
            documented, expected = " | ".join(cells), " | ".join(wanted[name])
            yield f"{name} is documented with {documented}, and has {expected}"
        if not meaning:
            yield f"{name} is not explained"


def unequal(wanted, named):
    yield from (f"{name} is missing" for name in sorted(wanted - named))
    yield from (f"{name} is documented, and does not exist" for name in sorted(named - wanted))


def beyond_their_variables(rows, templates):
    """Returns the variables whose setting offers a number that they do not accept, or other words.
    A setting without a common word, such as the number of ReadReplicas, means something else than
    its variable."""
    limits = templates.allowed | templates.parameters
    for variable, (_, accepted, setting) in rows.items():
        limit = limits.get(setting.strip("`"), {})
        offered = set(limit.get("AllowedValues", []))
        words = set(re.split(", | or ", accepted))
        numbers = re.search(r"from (\d+) to (\d+)$", accepted)
        least, most = map(int, numbers.groups()) if numbers else (0, 0)
        least = 0 if accepted.startswith("0, or ") else least
        fits = least <= limit.get("MinValue", least) <= limit.get("MaxValue", most) <= most
        if (offered & words and offered != words) or (numbers and not fits):
            yield f"{variable} accepts {accepted}, and {setting} offers {allowed_by(limit)}"


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
    of_functions = variables(program, templates)
    parameters = templates.parameters.items()
    others = {
        "Parameters of the template": {
            code(name): (code(body["Default"]), allowed_by(body)) for name, body in parameters
        },
        "Settings of the template": settings(templates),
        "Options of `local serve`": options(program),
    }
    for heading, wanted in (of_functions | others).items():
        faults = list(compare(wanted, documented.get(heading, [])))
        if heading in of_functions:
            faults += beyond_their_variables(wanted, templates)
        yield f"{document.name}, {heading}", len(wanted), faults

    operations = ROOT / "docs/operations.md"
    documented = tables_of(operations)
    metrics = set(map(code, metrics_written("shared/src", "functions", "endpoint/src")))
    for heading, wanted in {"Alarms": alarms(templates), "Metrics": metrics}.items():
        # A row may have two names, and a metric its dimension.
        names = " ".join(row[0].split(", by ")[0] for row in documented.get(heading, []))
        faults = unequal(wanted, set(re.findall(r"`[\w-]+`", names)))
        yield f"{operations.name}, {heading}", len(wanted), list(faults)

    count = f"`Parameter …`, {len(templates.parameters)} of them"
    text = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    yield "tutorial.md", 1, [] if count in text else [f"it does not contain {count}"]

    sources = [*(ROOT / "functions").rglob("src/**/*.rs"), *(ROOT / "shared/src").rglob("*.rs")]
    read = {name for path in sources for name in DIRECT.findall(path.read_text(encoding="utf-8"))}
    text = document.read_text(encoding="utf-8")
    faults = [f"{name} is missing" for name in sorted(read) if f"`{name}`" not in text]
    yield f"{document.name}, variables that the functions also read", len(read), faults


def main():
    cargo = ["cargo", "run", "--locked", "--quiet", "--bin", "local", "--"]
    program = [str(Path(sys.argv[1]).resolve())] if len(sys.argv) > 1 else cargo
    failed = 0
    for name, rows, faults in findings(program):
        failed += len(faults)
        print("\n".join(f"WRONG {name}: {fault}" for fault in faults) or f"ok    {name}: {rows}")
    print(f"{failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
