"""Code that the sections of the contract share."""

from template_expected import (
    ALARM_ARN,
    ALIAS,
    DEPLOYMENTS,
    EVERYWHERE,
    INSIGHT_ACTION,
    INSIGHT_RULES,
    TABLE_ARN,
)
from template_flat import FUNCTION, Deployment, as_list

SCALER = {"Ref": "ShardScalerFunction.Alias"}


def listed(values):
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "the defaults"


def alias(function):
    return {"Ref": f"{function}.Alias"}


def is_alias(value, function):
    """Returns whether a value is an alias, by a reference or by its name."""
    return value in (alias(function), {"Fn::Sub": f"${{{function}.Arn}}:{ALIAS}"})


def claim(method):
    """Marks a claim of a section: a method that checks the template."""
    method.is_claim = True
    return method


class Claims:
    """A section of the contract: its claims, and their results."""

    def __init__(self, templates):
        self.templates = templates
        self.deployments = {
            name: Deployment(templates, **values) for name, (values, _) in DEPLOYMENTS.items()
        }
        # Claims about every deployment use the deployment with the most resources.
        self.whole = self.deployments["everything"]
        self.of_type = self.whole.of_type
        self.functions = self.of_type(FUNCTION)
        self.checked = []
        self.failures = []

    def expect(self, holds, promise, failure):
        if holds:
            self.checked.append(promise)
        else:
            self.failures.append(failure)

    def check(self):
        for name, member in vars(type(self)).items():
            if getattr(member, "is_claim", False):
                getattr(self, name)()

    @staticmethod
    def variables_of(deployment, function):
        return deployment.of_type(FUNCTION)[function]["Environment"]["Variables"]

    @staticmethod
    def statements_of(deployment, role):
        policies = list(deployment.of_type("AWS::IAM::Role")[role]["Policies"])
        policies += [
            policy
            for policy in deployment.of_type("AWS::IAM::Policy").values()
            if {"Ref": role} in policy["Roles"]
        ]
        return [
            statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]
        ]

    def rights_of(self, deployment, role):
        rights = {}
        for statement in self.statements_of(deployment, role):
            actions = as_list(statement["Action"])
            for resource in as_list(statement["Resource"]):
                rights.setdefault(self.scope_of(deployment, role, resource, actions), set()).update(
                    actions
                )
        return rights

    def scope_of(self, deployment, role, resource, actions):
        """Returns the scope of a statement. A table has the same name whether or not the stack
        created it."""
        text = resource.get("Fn::Sub") if isinstance(resource, dict) else None
        for table, existing in (
            ("MainTable", "ExistingTable"),
            ("MetadataTable", "ExistingMetadataTable"),
        ):
            name = deployment.values[existing]
            if resource == (
                {"Fn::Sub": TABLE_ARN + name} if name else {"Fn::GetAtt": [table, "Arn"]}
            ):
                return table
            if text == (TABLE_ARN + name if name else f"${{{table}.Arn}}") + "/index/*":
                return f"the indexes of {table}"
        for function in self.functions:
            if is_alias(resource, function):
                return f"the alias of {function}"
            if resource in (
                {"Fn::GetAtt": [function, "Arn"]},
                {"Fn::Sub": f"${{{function}.Arn}}:*"},
            ):
                return f"{function}, any version"
        if resource == {"Fn::GetAtt": ["LostEventsQueue", "Arn"]}:
            return "LostEventsQueue"
        log = f"{role.removesuffix('Role')}LogGroup"
        if resource == {"Fn::GetAtt": [log, "Arn"]} and self.logs_to(deployment, role) == {
            "Ref": log
        }:
            return "its log"
        if actions == [INSIGHT_ACTION] and isinstance(text, str) and text.startswith(INSIGHT_RULES):
            return "the rules of Contributor Insights"
        if resource == "*" and {EVERYWHERE.get(action) for action in actions} == {
            EVERYWHERE.get(actions[0])
        }:
            return EVERYWHERE.get(actions[0])
        if isinstance(text, str) and text.startswith(ALARM_ARN + "${AWS::StackName}-"):
            return "alarm " + text.removeprefix(ALARM_ARN + "${AWS::StackName}-")
        if resource == deployment.values["EncryptionKey"]:
            return "the tables' key"
        return None

    @staticmethod
    def logs_to(deployment, role):
        function = f"{role.removesuffix('Role')}Function"
        return (
            deployment.resources.get(function, {})
            .get("Properties", {})
            .get("LoggingConfig", {})
            .get("LogGroup")
        )
