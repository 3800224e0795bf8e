"""Checks SAM's transform of the templates in every deployment of the contract: aliases, versions,
the kind of update, and that SAM adds no rights.

Usage: template_transform.py [TEMPLATE]
"""

import json
import logging
import sys
from pathlib import Path

import boto3
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from template_expected import ALIAS, DEPLOYMENTS, ROLES
from template_flat import Deployment, Templates, references

# SAM counts translations, and logs a warning if no program collects the counts.
for name in ("samtranslator.metrics", "samtranslator.feature_toggle.feature_toggle"):
    logging.getLogger(name).setLevel(logging.CRITICAL)

CODE = "s3://code/function.zip"


def transformed(template, values, code=CODE):
    template = json.loads(json.dumps(template))
    if "Globals" in template:
        template["Globals"]["Function"]["CodeUri"] = code
    # For SAM, a value that only CloudFormation knows is ordinary text.
    values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    return Translator({}, Parser(), boto_session=boto3.Session(region_name="us-east-1")).translate(template, values)


def of_type(template, kind):
    return {name: body for name, body in template["Resources"].items() if body["Type"] == kind}


def circle(template):
    """Returns resources that wait for each other, if any. A deployment group is a resource of the
    alias that it updates."""
    waits = {
        name: {each.split(".")[0] for each in references(body)} & template["Resources"].keys()
        for name, body in template["Resources"].items()
    }
    while free := [name for name, others in waits.items() if not others]:
        for name in free:
            del waits[name]
        for others in waits.values():
            others -= set(free)
    return sorted(waits)


def faults_of(functions, api, canary):
    yield from (
        f"wait for each other, or for one that does: {names}" for names in (circle(functions), circle(api)) if names
    )
    versions, aliases = of_type(functions, "AWS::Lambda::Version"), of_type(functions, "AWS::Lambda::Alias")
    for name in ROLES:
        mine = {each: body for each, body in versions.items() if body["Properties"]["FunctionName"] == {"Ref": name}}
        if len(mine) != 1:
            yield f"{name} has the versions {sorted(mine)}"
            continue
        [(version, body)] = mine.items()
        if (
            body["Properties"].get("Description") != {"Fn::GetAtt": ["Configuration", "Sha256"]}
            or body.get("DeletionPolicy") != "Delete"
        ):
            yield f"the version of {name} is {body}"
        alias = aliases.get(f"{name}Alias{ALIAS}", {})
        if alias.get("Properties", {}).get("FunctionVersion") != {"Fn::GetAtt": [version, "Version"]}:
            yield f"the alias of {name} is {alias}"
        if ("UpdatePolicy" in alias) != canary:
            yield f"an update of {name} uses {alias.get('UpdatePolicy')}"
    groups = of_type(functions, "AWS::CodeDeploy::DeploymentGroup")
    if set(groups) != ({f"{name}DeploymentGroup" for name in ROLES} if canary else set()):
        yield f"CodeDeploy has the groups {sorted(groups)}"
    for name, body in groups.items():
        alarms = body["Properties"]["AlarmConfiguration"]
        wanted = {
            "Enabled": True,
            "Alarms": [{"Name": {"Ref": name.replace("FunctionDeploymentGroup", "VersionErrorsAlarm")}}],
        }
        if alarms != wanted or body["Properties"]["ServiceRoleArn"] != {"Fn::GetAtt": ["DeploymentRole", "Arn"]}:
            yield f"{name} watches {alarms} as {body['Properties']['ServiceRoleArn']}"
        if "Canary10Percent5Minutes" not in str(body["Properties"]["DeploymentConfigName"]):
            yield f"{name} uses {body['Properties']['DeploymentConfigName']}"
    for invoked in of_type(functions, "AWS::Lambda::EventInvokeConfig").values():
        if invoked["Properties"]["Qualifier"] != ALIAS:
            yield f"events that are lost are kept of {invoked['Properties']['Qualifier']}"
    for template in (functions, api):
        for name, body in of_type(template, "AWS::IAM::Role").items():
            if "ManagedPolicyArns" in body["Properties"]:
                yield f"{name} has {body['Properties']['ManagedPolicyArns']}"
        known = {*template["Resources"], *template["Parameters"]}
        for place, body in template["Resources"].items():
            if lost := {
                name for name in references(body) if name.split(".")[0] not in known and not name.startswith("AWS::")
            }:
                yield f"{place} refers to {sorted(lost)}, which is not there"
            if left := [name for name in references(body) if "." in name]:
                yield f"SAM does not know {left} of {place}"
    if extra := set(of_type(functions, "AWS::IAM::Role")) - {*ROLES.values(), "DeploymentRole"}:
        yield f"SAM makes the roles {sorted(extra)}"


def version_names(templates, values, code=CODE):
    stack = Deployment(templates, **values).stack("Functions")
    return set(of_type(transformed(stack.template, stack.parameters, code), "AWS::Lambda::Version"))


def main():
    templates, failed = Templates(*map(Path, sys.argv[1:])), 0

    def report(what, faults):
        nonlocal failed
        failed += bool(faults)
        for fault in faults:
            print(f"FAIL  {what}: {fault}", file=sys.stderr)
        if not faults:
            print(f"ok    {what}")

    for deployed, (values, _) in DEPLOYMENTS.items():
        deployment = Deployment(templates, **values)
        functions, api = (
            transformed(deployment.stack(name).template, deployment.stack(name).parameters)
            for name in ("Functions", "HttpApi")
        )
        report(
            f"transformed with {deployed}",
            list(faults_of(functions, api, deployment.values["CanaryDeployment"] == "true")),
        )
    first = version_names(templates, {})
    report(
        "other code is another version of each function",
        [] if not first & version_names(templates, {}, CODE + "2") else ["the versions stay"],
    )
    # This is the reason for the fingerprint. If SAM detects changed values one day, remove it.
    report(
        "SAM does not see another value",
        [] if first == version_names(templates, {"MaxShards": 100}) else ["it does now"],
    )
    print(f"{failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
