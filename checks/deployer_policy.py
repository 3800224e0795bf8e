"""Compares docs/deployer-policy.json with the templates: it must have every right that
CloudFormation needs to create, change and remove their resources, and no other.

The types of resources come from the snapshots, and the rights of each type from CloudFormation:
cfn-lint contains the schemas of its registry, and each schema lists the permissions of every
handler. deployer_rights.yaml has the exceptions, by reason.
"""

import importlib.resources
import json
import re
import sys

import yaml
from expect import Report
from rules.template import ROOT, members

# IAM's maximum for the inline policies of a role, without white space. A managed policy takes 6,144,
# and a user 2,048.
MOST_CHARACTERS = 10_240
HANDLERS = ("create", "read", "update", "delete")


def types_of_resources():
    """Returns the types of resources of all snapshots, and that of a nested stack."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "checks/snapshots").glob("*.yaml")]
    found = {kind for text in texts for kind in re.findall(r"\bType: '?(AWS::\w+::\w+)", text)}
    # Nothing is made for a handle.
    return found - {"AWS::CloudFormation::WaitConditionHandle"} | {"AWS::CloudFormation::Stack"}


def rights_by_type():
    """Returns the rights that CloudFormation's handlers need, by type of resource."""
    rights = {}
    for file in (importlib.resources.files("cfnlint") / "data/schemas/resources").iterdir():
        schema = json.loads(file.read_text(encoding="utf-8")) if file.name.endswith(".json") else {}
        for name in HANDLERS if schema.get("handlers") else ():
            permissions = schema["handlers"].get(name, {}).get("permissions", [])
            rights.setdefault(schema["typeName"], set()).update(permissions)
    return rights


def main():
    report = Report()
    exceptions = yaml.safe_load((ROOT / "checks/deployer_rights.yaml").read_text(encoding="utf-8"))
    further, unused = ({each for part in exceptions[key].values() for each in part} for key in ("further", "unused"))
    policy = json.loads((ROOT / "docs/deployer-policy.json").read_text(encoding="utf-8"))
    statements = policy["Statement"]
    granted = {action for each in statements for action in members(each["Action"])}
    types, known = types_of_resources(), rights_by_type()
    named = {action for kind in types for action in known.get(kind, ())}
    needed = (named - unused) | further
    report.note(f"{len(types)} types of resources: {', '.join(sorted(types))}")

    report.none("CloudFormation names the rights of every type", sorted(types - known.keys()))
    report.none("a schema names every unused right, and none is needed otherwise", unused - named | unused & further)
    report.none("the policy has every needed right", sorted(needed - granted))
    report.none("the policy has no other right, and no pattern", sorted(granted - needed))
    report.none("the policy only allows", [each for each in statements if each["Effect"] != "Allow"])
    unscoped = {action for each in statements if "*" in members(each["Resource"]) for action in members(each["Action"])}
    unscoped = {each for each in unscoped if not {each, each.split(":")[0]} & set(exceptions["everywhere"])}
    report.none("only actions without resources are granted on everything", unscoped)
    for action, condition in (
        ("iam:PassRole", "iam:PassedToService"),
        ("iam:CreateServiceLinkedRole", "iam:AWSServiceName"),
    ):
        allowing = [str(each.get("Condition")) for each in statements if action in members(each["Action"])]
        report.none(f"{action} is for named services only", [each for each in allowing if condition not in each])
    length = len(re.sub(r"\s", "", json.dumps(policy)))
    report.check(f"it fits into the inline policy of a role: {length:,} characters", length <= MOST_CHARACTERS)
    document, stated = (ROOT / "docs/upgrading.md").read_text(encoding="utf-8"), f"{round(length, -2):,} characters"
    report.check("docs/upgrading.md has its length", stated in document, stated)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
