"""Compares docs/deployer-policy.json with the templates: it must have every right that
CloudFormation needs to create, change and remove their resources, and no other.

The rights of each type of resource come from CloudFormation: cfn-lint contains the schemas of its
registry, and each schema lists the permissions of every handler. `FURTHER` has needed rights that
no schema names. `UNUSED` has rights that a schema names for properties that the templates do not
use. An entry of `UNUSED` that no schema names any more also fails.
"""

import collections
import importlib.resources
import json
import logging
import os
import re
import sys

from samcli.yamlhelper import yaml_parse
from samtranslator.translator.transform import transform
from template_flat import FUNCTION, NESTED, ROOT, as_list

# SAM needs a region, but sends no request to it.
os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
POLICY = ROOT / "docs/deployer-policy.json"
# IAM's maximum for the inline policies of a role, without white space. A managed policy takes 6,144,
# and a user 2,048.
MOST_CHARACTERS = 10_240
UPGRADING = ROOT / "docs/upgrading.md"
HANDLERS = ("create", "read", "update", "delete")

# Rights that no schema names, by the reason for them.
FURTHER = {
    "sam deploy creates and executes a change set, and shows its progress": {
        "cloudformation:CreateChangeSet",
        "cloudformation:DeleteChangeSet",
        "cloudformation:DescribeChangeSet",
        "cloudformation:DescribeStackEvents",
        "cloudformation:ExecuteChangeSet",
        "cloudformation:GetTemplateSummary",
    },
    "sam deploy stores code and templates in a bucket, which it creates once per region": {
        "s3:CreateBucket",
        "s3:GetObject",
        "s3:ListBucket",
        "s3:PutBucketPolicy",
        "s3:PutBucketPublicAccessBlock",
        "s3:PutBucketTagging",
        "s3:PutBucketVersioning",
        "s3:PutEncryptionConfiguration",
        "s3:PutObject",
    },
    "sam delete removes what sam deploy has stored there": {"s3:DeleteObject"},
    "CloudFormation invokes the function behind a custom resource as the deployer": {
        "lambda:InvokeFunction"
    },
    "API Gateway sets up the delivery of its access log as the deployer": {
        "logs:CreateLogDelivery",
        "logs:DeleteLogDelivery",
        "logs:DescribeResourcePolicies",
        "logs:GetLogDelivery",
        "logs:ListLogDeliveries",
        "logs:PutResourcePolicy",
        "logs:UpdateLogDelivery",
    },
}
# Rights that schemas name for properties that the templates do not use.
UNUSED = {
    "import from S3, and replicas in other regions, which copy items": {
        "dynamodb:AssociateTableReplica",
        "dynamodb:BatchWriteItem",
        "dynamodb:CreateTableReplica",
        "dynamodb:DeleteItem",
        "dynamodb:DescribeImport",
        "dynamodb:GetItem",
        "dynamodb:ImportTable",
        "dynamodb:PutItem",
        "dynamodb:Query",
        "dynamodb:Scan",
        "dynamodb:UpdateItem",
        "logs:CreateLogStream",
        "logs:DescribeLogStreams",
        "logs:PutLogEvents",
        "s3:GetObjectMetadata",
    },
    "Kinesis": {
        "dynamodb:DisableKinesisStreamingDestination",
        "dynamodb:EnableKinesisStreamingDestination",
        "dynamodb:UpdateKinesisStreamingDestination",
        "kinesis:DescribeStream",
        "kinesis:PutRecords",
    },
    "policies of tables": {"dynamodb:DeleteResourcePolicy", "dynamodb:PutResourcePolicy"},
    "functions in a VPC, with file systems or layers, signed or with a key of their own": {
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSubnets",
        "ec2:DescribeVpcs",
        "elasticfilesystem:DescribeMountTargets",
        "kms:Encrypt",
        "kms:GenerateDataKey",
        "lambda:DeleteFunctionCodeSigningConfig",
        "lambda:GetCodeSigningConfig",
        "lambda:GetLayerVersion",
        "lambda:PutFunctionCodeSigningConfig",
        "s3files:ListMountTargets",
    },
    "functions with provisioned concurrency, a pinned runtime, or recursive calls": {
        "lambda:AssociateRuntimeAlias",
        "lambda:DeleteProvisionedConcurrencyConfig",
        "lambda:PassCapacityProvider",
        "lambda:PutFunctionRecursionConfig",
        "lambda:PutFunctionScalingConfig",
        "lambda:PutProvisionedConcurrencyConfig",
        "lambda:PutRuntimeManagementConfig",
    },
    "roles with managed policies, boundaries or descriptions": {
        "iam:AttachRolePolicy",
        "iam:DeleteRolePermissionsBoundary",
        "iam:DetachRolePolicy",
        "iam:PutRolePermissionsBoundary",
        "iam:UpdateRole",
        "iam:UpdateRoleDescription",
    },
    "policies of groups and users": {
        "iam:DeleteGroupPolicy",
        "iam:DeleteUserPolicy",
        "iam:GetGroupPolicy",
        "iam:GetUserPolicy",
        "iam:PutGroupPolicy",
        "iam:PutUserPolicy",
    },
    "logs with a key, an index, masked fields or another destination": {
        "firehose:TagDeliveryStream",
        "logs:AssociateKmsKey",
        "logs:DeleteDataProtectionPolicy",
        "logs:DeleteIndexPolicy",
        "logs:DeleteResourcePolicy",
        "logs:DeleteRetentionPolicy",
        "logs:DisassociateKmsKey",
        "logs:PutBearerTokenAuthentication",
        "logs:PutDataProtectionPolicy",
        "logs:PutIndexPolicy",
        "logs:PutLogGroupDeletionProtection",
        "s3:REST.PUT.OBJECT",
    },
    "topics with masked fields": {"sns:PutDataProtectionPolicy"},
    "policies of nested stacks": {
        "cloudformation:GetStackPolicy",
        "cloudformation:SetStackPolicy",
        "cloudformation:UpdateTerminationProtection",
    },
    "scheduled capacity": {
        "application-autoscaling:DeleteScheduledAction",
        "application-autoscaling:PutScheduledAction",
    },
    "deployments to machines": {"codedeploy:RegisterOnPremisesInstance"},
    "APIs that a body in S3 describes": {"s3:getObject"},
}
# Nothing is made for it.
WITHOUT_RIGHTS = {"AWS::CloudFormation::WaitConditionHandle"}
# Services and actions without a resource, or without the stack's name in it.
ON_EVERYTHING = {
    "application-autoscaling",
    "cloudformation:GetTemplateSummary",
    "cloudwatch:DescribeAlarms",
    "cloudwatch:GetMetricData",
    "kms:ListAliases",
    "logs:CreateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:DescribeLogGroups",
    "logs:DescribeResourcePolicies",
    "logs:GetLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:UpdateLogDelivery",
}

failed = 0


def expect(holds, promise, found=""):
    global failed
    failed += not holds
    print(f"{'ok   ' if holds else 'WRONG'} {promise}{'' if holds else f': {found}'}")


class NoManagedPolicies:
    """Replaces the look-up of managed policies, because the templates attach none."""

    @staticmethod
    def load():
        return {}


def transformed(path):
    """Returns a template after SAM's transform, with everything that a parameter may switch on."""
    template = yaml_parse(path.read_text(encoding="utf-8"))
    if "Transform" not in template:
        return template
    for resource in template["Resources"].values():
        properties = resource.get("Properties", {})
        if resource["Type"] == FUNCTION:
            properties["CodeUri"] = "s3://bucket/key"
        if resource["Type"] == NESTED:
            properties["Location"] = "https://s3.amazonaws.com/bucket/key"
    # The code is an object in S3 for each function; the default is a folder.
    template.get("Globals", {}).get("Function", {}).pop("CodeUri", None)
    values = {
        name: parameter.get("Default", "value")
        for name, parameter in template.get("Parameters", {}).items()
    }
    # By default SAM omits CodeDeploy.
    values |= {name: "true" for name in ("CanaryDeployment",) if name in values}
    logging.disable()
    return transform(template, values, NoManagedPolicies())


def resource_types():
    """Returns the types of resources in all templates, each with its resources."""
    types = collections.defaultdict(list)
    for path in [ROOT / "template.yaml", *sorted((ROOT / "templates").glob("*.yaml"))]:
        for name, resource in transformed(path)["Resources"].items():
            kind = resource["Type"]
            if not kind.startswith("Custom::") and kind not in WITHOUT_RIGHTS:
                types[kind].append(name)
    return types


def rights_by_type():
    """Returns the rights that CloudFormation's handlers need, by type of resource."""
    rights = {}
    folder = importlib.resources.files("cfnlint") / "data/schemas/resources"
    for file in folder.iterdir():
        if file.name.endswith(".json"):
            schema = json.loads(file.read_text(encoding="utf-8"))
            handlers = schema.get("handlers")
            if handlers:
                needed = {
                    action
                    for name in HANDLERS
                    for action in handlers.get(name, {}).get("permissions", [])
                }
                rights[schema["typeName"]] = needed | rights.get(schema["typeName"], set())
    return rights


def main():
    policy = json.loads(POLICY.read_text(encoding="utf-8"))
    statements = policy["Statement"]
    granted = [action for statement in statements for action in as_list(statement["Action"])]
    types, known = resource_types(), rights_by_type()
    print(
        f"      {sum(map(len, types.values()))} resources of {len(types)} types: "
        f"{', '.join(sorted(types))}"
    )

    expect(
        not set(types) - set(known),
        "CloudFormation names the rights of every type",
        sorted(set(types) - set(known)),
    )
    named = {action for kind in types for action in known.get(kind, ())}
    further = {action for actions in FURTHER.values() for action in actions}
    unused = {action for actions in UNUSED.values() for action in actions}
    expect(unused <= named, "a schema names every unused right", sorted(unused - named))
    expect(not unused & further, "no right is both unused and needed", sorted(unused & further))
    needed = (named - unused) | further
    expect(
        set(granted) >= needed,
        "the policy has every needed right",
        sorted(needed - set(granted)),
    )
    expect(set(granted) <= needed, "the policy has no other right", sorted(set(granted) - needed))
    services = {action.split(":")[0] for action in needed}
    expect(
        {action.split(":")[0] for action in granted} == services,
        f"the services are those of the templates: {', '.join(sorted(services))}",
    )

    expect(
        all(statement["Effect"] == "Allow" for statement in statements), "the policy only allows"
    )
    wild = [action for action in granted if "*" in action]
    expect(not wild, "no pattern grants a right", wild)
    unscoped = {
        action
        for statement in statements
        if "*" in as_list(statement["Resource"])
        for action in as_list(statement["Action"])
        if not {action, action.split(":")[0]} & ON_EVERYTHING
    }
    expect(not unscoped, "only actions without resources are granted on everything", sorted(unscoped))
    passing = [
        statement for statement in statements if "iam:PassRole" in as_list(statement["Action"])
    ]
    holds = len(passing) == 1 and "iam:PassedToService" in json.dumps(
        passing[0].get("Condition", {})
    )
    expect(holds, "roles can be passed to named services only", passing)
    linked = [
        statement
        for statement in statements
        if "iam:CreateServiceLinkedRole" in as_list(statement["Action"])
    ]
    holds = len(linked) == 1 and "iam:AWSServiceName" in json.dumps(linked[0].get("Condition", {}))
    expect(holds, "service-linked roles can be created for named services only", linked)
    length = len(re.sub(r"\s", "", json.dumps(policy)))
    expect(
        length <= MOST_CHARACTERS,
        f"it fits into the inline policy of a role: {length:,} of {MOST_CHARACTERS:,} characters",
        length,
    )
    stated = f"{round(length, -2):,} characters"
    expect(stated in UPGRADING.read_text(encoding="utf-8"), "docs/upgrading.md has its length", stated)

    print(f"{failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
