"""Compares docs/configuration.md with the functions' variables, the template's parameters and
settings, and the options of `local serve`. Compares docs/operations.md with the template's alarms
and the functions' metrics, and the number of parameters in docs/tutorial.md with the template.

Usage: configuration.py [LOCAL_BINARY]. Without the program, the check does not compare its output:
the options, and the allowed values of variables.

The check reads names from the code that uses them, defaults from the code and the template, and
allowed values from the template and from the program's messages about wrong variables. The values
that a variable accepts must be those that its setting offers. The last column of each table is
text. It must not be empty.
"""

import os
import pathlib
import re
import subprocess
import sys

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

# Files in which the functions read their variables: `read.set(…, "LEASE_MS", …)`.
CONFIGURATIONS = (
    ROOT / "shared/src/config/mod.rs",
    ROOT / "functions/shard-scaler/src/config.rs",
    ROOT / "functions/writer/src/shard_scaler.rs",
)
VARIABLE_READ = re.compile(r'\bread\s*\.\s*\w+\([^"]*"([A-Z][A-Z0-9_]*)"')
# The attribute that the custom resource Configuration computes from its property `LargestOf`.
LARGEST = {"Fn::GetAtt": ["Configuration", "Largest"]}
DOCUMENT = ROOT / "docs/configuration.md"
OPERATIONS = ROOT / "docs/operations.md"
TUTORIAL = ROOT / "docs/tutorial.md"
# The headings above the tables.
ALL_FUNCTIONS, SCALER, WRITER = (
    "All functions",
    "Additional variables of the shard-scaler",
    "Additional variables of the writer",
)
PARAMETERS, SETTINGS, SERVE = (
    "Parameters of the template",
    "Settings of the template",
    "Options of `local serve`",
)
HEADINGS = dict(zip(CONFIGURATIONS, (ALL_FUNCTIONS, SCALER, WRITER)))
REQUIRED, EMPTY = "required", "empty"
# Longer than any variable may be.
WRONG = "x" * 300

POLICY, CONFIG, SCALER_CONFIG = (
    "shared/src/policy/rules.rs",
    "shared/src/config/mod.rs",
    "functions/shard-scaler/src/config.rs",
)
WAKING = "functions/writer/src/shard_scaler.rs"
# The file and the pattern of each variable's default. A pattern without a match is a finding.
DEFAULTS = {
    "PARTITION_KEY_NAME": (CONFIG, r'partition_key_name: "(\w+)"'),
    "SORT_KEY_NAME": (CONFIG, r'sort_key_name: "(\w+)"'),
    "SORT_KEY_TYPE": (CONFIG, r"sort_key_type: SortKeyType::(S)tring"),
    "SHARD_PLACEMENT": ("shared/src/values/placement.rs", r"#\[default\]\s+(\w+)"),
    "SHARD_SEPARATOR": ("shared/src/values/key.rs", r'impl Default for Separator \{[^"]*"([^"]+)"'),
    "MAX_SHARDS": (POLICY, r"max_shards: ShardCount::new\((\d+)\)"),
    "COOLDOWN_SECONDS": (POLICY, r"cooldown_seconds: (\d+),"),
    "LEASE_MS": (
        "shared/src/protocol/view.rs",
        r"MAX_LEASE: Duration = Duration::from_secs\((\d+)\)",
    ),
    "WRITES": (CONFIG, r"pub enum Writes \{[^}]*#\[default\]\s+(\w+)"),
    "REGISTER_KEYS": (CONFIG, r"register_keys: (true|false),"),
    "SCALING": (CONFIG, r"#\[default\]\s+(\w+)"),
    "READ_REPLICAS": (CONFIG, r"read_replicas: Vec::new\(()\)"),
    "TTL_ATTRIBUTE": (CONFIG, r"ttl_attribute: None(),"),
    "LET_EXPIRE_SECONDS": (CONFIG, r"let_expire: Duration::from_secs\(([\d_]+)\)"),
    "ADOPT_SHARDS": (CONFIG, r'"(0)" => Some\(None\)'),
    "MAX_EVENT_AGE_SECONDS": (SCALER_CONFIG, r"max_event_age: Duration::from_secs\((\d+)\)"),
    "MAX_WRITE_UNITS": (SCALER_CONFIG, r"max_write_units: (\d+)"),
    "MAX_READ_UNITS": (SCALER_CONFIG, r"max_read_units: (\d+)"),
    "MAX_WARM_WRITE_UNITS": (SCALER_CONFIG, r"max_warm_write_units: (\d+)"),
    "MAX_WARM_READ_UNITS": (SCALER_CONFIG, r"max_warm_read_units: (\d+)"),
    "SHRINK_AFTER_SECONDS": (SCALER_CONFIG, r"shrink_after: Duration::(ZERO)"),
    "SETTLE_AFTER_SECONDS": (SCALER_CONFIG, r"settle_after: Duration::(ZERO)"),
    "DRAIN_SHARE_PERCENT": (SCALER_CONFIG, r"drain_share_percent: (\d+)"),
    "DRY_RUN": (SCALER_CONFIG, r"dry_run: (false|true)"),
    "SHARD_SCALER_FUNCTION": (WAKING, r"let mut function = None();"),
}
# The allowed values of variables that the local edition does not read.
ALLOWED = {"SHARD_SCALER_FUNCTION": (WAKING, r'let allowed =\s+"([^"]+)";')}
# The code has these in seconds.
MILLISECONDS = {"LEASE_MS"}
NEEDED = {"TABLE_NAME", "METADATA_TABLE_NAME"}

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
        limits = self.nested["CheckedSettings"]["Parameters"]
        self.allowed = {name: limits[name] for name in self.settings}


def largest_of(template):
    """Returns the numbers of which Configuration finds the largest."""
    return template["Resources"]["Configuration"]["Properties"]["LargestOf"]


def tables_of(text):
    """Returns the rows of the tables beneath each heading of the second level."""
    sections = {}
    heading = None
    for line in text.split("\n"):
        if line.startswith("## "):
            heading = line[3:].strip()
            sections[heading] = []
        elif line.startswith("|") and heading and not line.startswith("|---"):
            sections[heading].append(
                [
                    cell.strip().replace("\\|", "|")
                    for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])
                ]
            )
    # A table's first row names its columns. Every row of content begins with a backtick.
    return {
        heading: [row for row in rows if row[0].startswith("`")]
        for heading, rows in sections.items()
    }


def code(text):
    return f"`{text}`" if text != "" else EMPTY


def said_to_be_allowed(binary, variable):
    """Returns the allowed values from the program's message about a wrong value, or None without a
    program. If the program accepted the value, it would listen on ports that the system chooses."""
    if variable in ALLOWED:
        path, pattern = ALLOWED[variable]
        found = re.search(pattern, (ROOT / path).read_text(encoding="utf-8"))
        return found[1] if found else f"not found in {path} any more"
    if binary is None:
        return None
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in DEFAULTS | dict.fromkeys(NEEDED)
    }
    command = [binary, "serve", "--port", "0", "--dynamodb-port", "0", "--endpoint-port", "0"]
    try:
        done = subprocess.run(
            command,
            env=environment | {variable: WRONG},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "anything: it starts with 300 bytes"
    message = re.search(rf'{variable} is "{WRONG}"; allowed: (.*)', done.stderr)
    return message[1].strip() if message else f"no message: {done.stderr.strip()}"


def default_of(variable):
    if variable in NEEDED:
        return REQUIRED
    if variable not in DEFAULTS:
        return "not known to this check: add it to DEFAULTS"
    path, pattern = DEFAULTS[variable]
    found = re.search(pattern, (ROOT / path).read_text(encoding="utf-8"))
    if not found:
        return f"not found in {path} any more"
    value = {"S": "S", "ZERO": "0", "ONE": "1"}.get(found[1], found[1].lower())
    return code(f"{int(value) * 1000}" if variable in MILLISECONDS else value)


def set_by(templates):
    """Returns the parameter or setting of each variable, if it has one."""
    root, nested = templates.root, templates.nested["Functions"]
    handed = root["Resources"]["Functions"]["Properties"]["Parameters"]
    functions = [
        nested["Globals"]["Function"],
        *(body["Properties"] for body in nested["Resources"].values() if body["Type"] == FUNCTION),
    ]
    rows = {}
    for function in functions:
        for name, value in function.get("Environment", {}).get("Variables", {}).items():
            value = largest_of(nested) if value == LARGEST else value
            # The innermost condition comes first, because the others only restrict it.
            deciding = [
                nested["Conditions"][condition] for condition in conditions_behind(nested, value)
            ][::-1]
            parameters = [
                each for part in (value, deciding) for each in references(part) if each in handed
            ]
            given = handed[parameters[0]]
            sources = settings_of(given) + [
                each
                for each in references(given)
                if each in templates.parameters and each != "Profile"
            ]
            sources += [
                each
                for condition in conditions_behind(root, given)
                for each in settings_of(root["Conditions"][condition])
            ]
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
    return (
        parameter["ConstraintDescription"]
        .removeprefix("must be ")
        .removeprefix("must ")
        .rstrip(".")
    )


def variables(binary, templates):
    parameters = set_by(templates)
    for path, heading in HEADINGS.items():
        names = VARIABLE_READ.findall(path.read_text(encoding="utf-8").split("#[cfg(test)]")[0])
        yield (
            heading,
            {
                code(name): (
                    default_of(name),
                    said_to_be_allowed(binary, name),
                    parameters.get(name, "not set by the template"),
                )
                for name in names
            },
        )


def parameters(templates):
    return {
        code(name): (code(body["Default"]), allowed_by(body))
        for name, body in templates.parameters.items()
    }


def settings(templates):
    """Returns the value of the profile standard, and those of the others if they differ."""
    rows = {}
    for name, row in templates.settings.items():
        others = [
            f"{profile} {code(value)}" for profile, value in row.items() if value != row["standard"]
        ]
        rows[code(name)] = (
            ", ".join([code(row["standard"]), *others]),
            allowed_by(templates.allowed[name]),
        )
    return rows


def options(binary):
    printed = subprocess.run(
        [binary, "serve", "-h"], capture_output=True, text=True, timeout=20, check=True
    ).stdout
    found = (OPTION.match(line) for line in printed.split("\n"))
    return {
        code(f"{option[1]} {option[2]}".removesuffix(" None")): (
            code(option[4] or "") if option[4] else "none",
        )
        for option in found
        if option and option[1] not in ("--help", "--version")
    }


def compare(wanted, rows):
    """Returns the faults of the tables beneath a heading. Unknown values are not compared."""
    named = [row[0] for row in rows]
    for name in sorted(set(wanted) - set(named)):
        yield f"{name} is missing"
    for name in sorted(set(named) - set(wanted)):
        yield f"{name} is documented, and does not exist"
    for name in sorted({name for name in named if named.count(name) > 1}):
        yield f"{name} is documented twice"
    for name, *cells, meaning in rows:
        if name in wanted and (
            len(cells) != len(wanted[name])
            or any(expected not in (None, cell) for cell, expected in zip(cells, wanted[name]))
        ):
            yield (
                f"{name} is documented with {' | '.join(cells)}, and has "
                f"{' | '.join(map(str, wanted[name]))}"
            )
        if not meaning:
            yield f"{name} is not explained"


def alarms(templates):
    """Returns the alarms' names, without the parts for the stack and the version."""
    names = [name for each in templates.nested.values() for name in names_of_alarms(each).values()]
    return {
        code(re.sub(r"-\$\{\w+\.Version\.Version\}$", "", name.removeprefix("${Stack}-")))
        for name in names
    }


def metrics():
    return {code(name) for name in metrics_written("shared/src", "functions", "endpoint/src")}


def unlike_their_settings(rows, templates):
    """Returns the variables whose setting allows other words than they do. A setting without a
    common word, such as the number of ReadReplicas, means something else than its variable."""
    parameters = templates.parameters | templates.allowed
    for variable, (_, allowed, setting) in rows.items():
        offered = set(parameters.get(setting.strip("`"), {}).get("AllowedValues", []))
        accepted = set(re.split(", | or ", allowed or ""))
        if offered & accepted and offered != accepted:
            yield (
                f"{variable} accepts {', '.join(sorted(accepted))}, and {setting} offers "
                f"{', '.join(sorted(offered))}"
            )


def unequal(wanted, rows):
    # A row may have two names, and a metric its dimension.
    named = set(re.findall(r"`[\w-]+`", " ".join(row[0].split(", by ")[0] for row in rows)))
    yield from (f"{name} is missing" for name in sorted(wanted - named))
    yield from (f"{name} is documented, and does not exist" for name in sorted(named - wanted))


def main():
    binary = str(pathlib.Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else None
    templates = Templates()
    text = DOCUMENT.read_text(encoding="utf-8")
    documented = tables_of(text)
    wanted = dict(variables(binary, templates)) | {
        PARAMETERS: parameters(templates),
        SETTINGS: settings(templates),
    }
    if binary:
        wanted |= {SERVE: options(binary)}
    else:
        print("SKIP  the output of the program, because no program was given")
    failed = 0
    for heading, each in wanted.items():
        wrong = list(compare(each, documented.get(heading, [])))
        if heading in HEADINGS.values():
            wrong += unlike_their_settings(each, templates)
        failed += len(wrong)
        for line in wrong:
            print(f"WRONG {DOCUMENT.name}, {heading}: {line}")
        if not wrong:
            print(f"ok    {heading}: {len(each)}")
    documented = tables_of(OPERATIONS.read_text(encoding="utf-8"))
    for heading, each in {"Alarms": alarms(templates), "Metrics": metrics()}.items():
        wrong = list(unequal(each, documented.get(heading, [])))
        failed += len(wrong)
        for line in wrong:
            print(f"WRONG {OPERATIONS.name}, {heading}: {line}")
        if not wrong:
            print(f"ok    {heading}: {len(each)}")
    count = f"`Parameter …`, {len(templates.parameters)} of them"
    counted = count in TUTORIAL.read_text(encoding="utf-8")
    failed += not counted
    print(
        f"ok    {TUTORIAL.name}: {count}"
        if counted
        else f"WRONG {TUTORIAL.name}: it does not contain {count}"
    )
    sources = [
        path
        for folder in ("functions", "shared/src")
        for path in (ROOT / folder).rglob("src/**/*.rs" if folder == "functions" else "*.rs")
    ]
    read = {name for path in sources for name in DIRECT.findall(path.read_text(encoding="utf-8"))}
    undocumented = sorted(name for name in read if f"`{name}`" not in text)
    failed += len(undocumented)
    print(
        f"WRONG {DOCUMENT.name}: the functions also read {', '.join(undocumented)}"
        if undocumented
        else f"ok    also read: {', '.join(sorted(read))}"
    )
    print(f"{failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
