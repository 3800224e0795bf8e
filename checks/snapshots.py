"""Evaluates template.yaml and its nested templates for each deployment of
checks/snapshots/deployments.yaml, and compares the results with the snapshots beside it: all
resources and outputs of `standard`, and of the other deployments what differs from it. Also compares
the messages that reject the values of checks/snapshots/refused.yaml.

The emulator's CloudFormation (checks/ministack) evaluates: SAM's transform, the limits of
parameters, rules, conditions and references. A reference to a resource remains: `${MainTable.Arn}`.

Usage: snapshots.py [--renew]
"""

import copy
import difflib
import json
import logging
import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import environment  # noqa: F401 - before all that imports ministack
import stacks
import yaml
from ministack.core.responses import request_scope
from ministack.services.cloudformation import engine

# SAM counts translations, and warns if no program collects the counts.
logging.getLogger("samtranslator").setLevel(logging.CRITICAL)

ROOT = Path(__file__).parent.parent
SNAPSHOTS = Path(__file__).parent / "snapshots"
NESTED = "AWS::CloudFormation::Stack"
# Values that CloudFormation learns from the function behind the custom resources.
KNOWN = {("ExistingTables", "Passed"): "true"}
# No template names them, so a value that names its own stands out.
ACCOUNT, REGION, STACK = "111122223333", "eu-south-1", "STACK"
# A hash of the code and the properties of a function.
HASH = re.compile(r"(?<=Version)[0-9a-f]{10}\b")
KEPT = ("Type", "DependsOn", "DeletionPolicy", "UpdateReplacePolicy", "UpdatePolicy", "Properties")


@cache
def parsed(path):
    return engine._parse_template(path.read_text(encoding="utf-8"))


class Attributes(dict):
    """The attributes of a resource, as references to them."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def __contains__(self, attribute):
        return True

    def __getitem__(self, attribute):
        return KNOWN.get((self.name, attribute), f"${{{self.name}.{attribute}}}")


class Resources(dict):
    """The resources of a template. A reference to any other is a fault."""

    def __contains__(self, name):
        if not super().__contains__(name):
            raise ValueError(f"a reference to {name}, which is not in this deployment")
        return True

    def get(self, name, default=None):
        return self[name] if name in self else default


class Deployment:
    """The templates for the given parameters and settings: resources, and what nested stacks wait for."""

    def __init__(self, template, values):
        self.resources, self.conditions = {}, {}
        values = {name: str(value) for name, value in values.items()}
        with request_scope(ACCOUNT, REGION):
            self.outputs = self._evaluated(template, values)

    def _evaluated(self, path, values):
        """Collects the resources of a template, and returns its outputs."""
        template = copy.deepcopy(parsed(path))
        for name, row in template.get("Mappings", {}).get("Settings", {}).items():
            template["Mappings"]["Settings"][name] = dict.fromkeys(row, values.pop(name)) if name in values else row
        if unknown := values.keys() - template["Parameters"].keys():
            raise ValueError(f"neither parameters nor settings: {sorted(unknown)}")
        if "Globals" in template:
            template["Globals"]["Function"]["CodeUri"] = "s3://code/function"
        given = [{"Key": name, "Value": value} for name, value in values.items()]
        template = stacks.transformed(template, given)
        parameters = engine._resolve_parameters(template, given)
        conditions = stacks.conditions(template, parameters)
        self.conditions |= {(path.name, name): value for name, value in conditions.items()}
        engine._evaluate_rules(template, parameters, conditions)
        bodies, resources, outputs = template["Resources"], Resources(), {}

        def resolved(value):
            return engine._resolve_refs(
                value, resources, parameters, conditions, template.get("Mappings", {}), STACK, STACK
            )

        def present(members):
            return [name for name, body in members.items() if conditions.get(body.get("Condition"), True)]

        bodies = {name: bodies[name] for name in present(bodies)}
        for name in bodies:
            resources[name] = {"PhysicalResourceId": f"${{{name}}}", "Attributes": Attributes(name)}
        for name in engine._topological_sort(bodies, conditions):
            body = resolved({key: value for key, value in bodies[name].items() if key in KEPT})
            if body["Type"] == NESTED:
                below = path.parent / body["Properties"]["TemplateURL"]
                values = {key: str(value) for key, value in body["Properties"].get("Parameters", {}).items()}
                found = self._evaluated(below, values)
                resources[name]["Attributes"] = {f"Outputs.{key}": value for key, value in found.items()}
                self.resources[name] = {"After": sorted(engine._extract_deps(bodies[name], set(bodies)))}
                continue
            if name in self.resources:
                raise ValueError(f"two templates have a resource {name}")
            if {"S3Bucket", "ZipFile"} & body.get("Properties", {}).get("Code", {}).keys():
                del body["Properties"]["Code"]  # checks/deployment runs it.
            self.resources[name] = body
        for name in present(template.get("Outputs", {})):
            outputs[name] = resolved(template["Outputs"][name]["Value"])
        return outputs

    def readable(self):
        """Returns resources and outputs with parsed JSON and named statements."""
        found = {**{name: self.resources[name] for name in sorted(self.resources)}, "Outputs": self.outputs}
        return readable(yaml.safe_load(HASH.sub("", json.dumps(found))))


def readable(value):
    if isinstance(value, list):
        if value and all(isinstance(each, dict) and "Sid" in each for each in value):
            return {each["Sid"]: readable({k: v for k, v in each.items() if k != "Sid"}) for each in value}
        return [readable(each) for each in value]
    if isinstance(value, dict):
        return {name: readable(each) for name, each in value.items()}
    return {"parsed": json.loads(value)} if isinstance(value, str) and value.startswith("{") else value


def difference(base, other):
    """Returns what differs in `other`, down to the first value that is no mapping."""
    if not (isinstance(base, dict) and isinstance(other, dict)):
        return other
    return {
        name: difference(base.get(name), other[name]) if name in other else "(absent)"
        for name in [*other, *(name for name in base if name not in other)]
        if name not in other or name not in base or base[name] != other[name]
    }


def refusal(template, values):
    try:
        Deployment(template, values)
    except ValueError as error:
        return str(error)
    return "(accepted)"


def texts(template):
    """Returns the content of each snapshot by the name of its file."""
    found, reached, base = {}, defaultdict(set), None
    for title, values in read("deployments").items():
        deployment = Deployment(template, values)
        for condition, value in deployment.conditions.items():
            reached[condition].add(value)
        whole = deployment.readable()
        base = base or whole
        found[title.replace(", ", "-").replace(" ", "-")] = whole if whole is base else difference(base, whole)
    if once := sorted(" ".join(condition) for condition, values in reached.items() if len(values) < 2):
        sys.exit(f"deployments.yaml reaches only one value of these conditions: {', '.join(once)}")
    found["refused"] = [
        {"values": row["values"], "message": refusal(template, row["values"])} for row in read("refused")
    ]
    return {
        f"{name}.yaml": yaml.safe_dump(content, sort_keys=False, width=100, default_flow_style=None)
        for name, content in found.items()
    }


def read(name):
    return yaml.safe_load((SNAPSHOTS / f"{name}.yaml").read_text(encoding="utf-8"))


def main(arguments):
    renew = "--renew" in arguments
    changed = 0
    for name, text in texts(ROOT / "template.yaml").items():
        path = SNAPSHOTS / name
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        changed += before != text
        print(f"{'ok     ' if before == text else 'CHANGED'} {name}: {len(text.splitlines())} lines")
        sys.stdout.writelines(
            difflib.unified_diff(before.splitlines(True), text.splitlines(True), name, f"{name}, now", n=2)
        )
        if renew:
            path.write_text(text, encoding="utf-8")
    if changed and not renew:
        renewal = "PYTHONPATH=checks/ministack .tools/ministack/bin/python checks/snapshots.py --renew"
        print(f"{changed} snapshots differ. If the change is meant: {renewal}", file=sys.stderr)
    return bool(changed and not renew)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
