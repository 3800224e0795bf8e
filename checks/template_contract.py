"""What the linters cannot know of template.yaml: that it keeps the promises which the functions and their callers rely on.

Usage: template_contract.py [TEMPLATE]
"""

import sys
from pathlib import Path

import yaml

VARIABLES = {
    "TABLE_NAME",
    "METADATA_TABLE_NAME",
    "PARTITION_KEY_NAME",
    "SORT_KEY_NAME",
    "SORT_KEY_TYPE",
    "SHARD_PLACEMENT",
    "SHARD_SEPARATOR",
    "MAX_SHARDS",
    "COOLDOWN_SECONDS",
    "LEASE_MS",
    "COLD_APPEND",
    "SCALING",
    "SCALING_POLICY",
}

ROUTES = {
    "WriterFunction": {"POST /items", "POST /items/batch", "PUT /item", "DELETE /item"},
    "ReaderFunction": {"GET /items", "GET /item", "GET /shards"},
    "ShardScalerFunction": set(),
}

ALARM_PRINCIPAL = "lambda.alarms.cloudwatch.amazonaws.com"
ALARM_ARN = "arn:${AWS::Partition}:cloudwatch:${AWS::Region}:${AWS::AccountId}:alarm:"

# Contributor Insights makes these rules, so the template cannot refer to them; the permission exists for nothing else.
INSIGHT_ACTION = "cloudwatch:GetInsightRuleReport"
INSIGHT_RULES = "arn:${AWS::Partition}:cloudwatch:${AWS::Region}:${AWS::AccountId}:insight-rule/DynamoDBContributorInsights"


class CloudFormationLoader(yaml.SafeLoader):
    """Reads a short intrinsic (`!Ref x`) as its long form (`{"Ref": "x"}`)."""


def _intrinsic(loader, tag, node):
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    if tag == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {tag if tag in ("Ref", "Condition") else f"Fn::{tag}": value}


CloudFormationLoader.add_multi_constructor("!", _intrinsic)


def as_list(value):
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


class Contract:
    def __init__(self, template):
        self.resources = template["Resources"]
        self.globals = template.get("Globals", {}).get("Function", {})
        self.functions = self.of_type("AWS::Serverless::Function")
        self.checked = []
        self.failures = []

    def of_type(self, kind):
        return {name: body["Properties"] for name, body in self.resources.items() if body["Type"] == kind}

    def expect(self, holds, promise, failure):
        if holds:
            self.checked.append(promise)
        else:
            self.failures.append(failure)

    def check(self):
        self.the_functions_are_the_known_ones()
        self.every_alarm_action_is_permitted()
        self.every_function_has_every_variable()
        self.every_route_has_an_event()
        self.every_statement_is_scoped()

    def the_functions_are_the_known_ones(self):
        self.expect(
            set(self.functions) == set(ROUTES),
            f"functions: {', '.join(self.functions)}",
            f"the functions should be {sorted(ROUTES)}, the template has {sorted(self.functions)}",
        )

    def every_alarm_action_is_permitted(self):
        permissions = self.of_type("AWS::Lambda::Permission")
        actions = [
            (alarm, properties.get("AlarmName"), function)
            for alarm, properties in self.of_type("AWS::CloudWatch::Alarm").items()
            for kind in ("AlarmActions", "OKActions", "InsufficientDataActions")
            for action in as_list(properties.get(kind))
            for function in self.functions
            if self.refers_to(action, function)
        ]
        self.expect(
            any(function == "ShardScalerFunction" for _, _, function in actions),
            "an alarm wakes ShardScalerFunction",
            "no alarm has ShardScalerFunction as an action",
        )
        for alarm, alarm_name, function in actions:
            faults = {
                name: self.permission_faults(body, alarm, alarm_name)
                for name, body in permissions.items()
                if self.refers_to(body.get("FunctionName"), function)
            }
            told = "; ".join(f"{name}: {', '.join(found)}" for name, found in faults.items())
            self.expect(
                any(not found for found in faults.values()),
                f"alarm {alarm} may invoke {function}",
                f"alarm {alarm} may not invoke {function}: {told or 'it has no permission at all'}",
            )

    def permission_faults(self, permission, alarm, alarm_name):
        named = alarm_name.get("Fn::Sub") if isinstance(alarm_name, dict) else alarm_name
        arns = [{"Fn::GetAtt": [alarm, "Arn"]}, {"Fn::Sub": f"${{{alarm}.Arn}}"}]
        if named:
            arns.append({"Fn::Sub": ALARM_ARN + named})
        wanted = {
            "Action": ["lambda:InvokeFunction"],
            "Principal": [ALARM_PRINCIPAL],
            "SourceAccount": [{"Ref": "AWS::AccountId"}, {"Fn::Sub": "${AWS::AccountId}"}],
            "SourceArn": arns,
        }
        return [
            f"{field} is {permission.get(field)!r}, not {allowed[-1]!r}"
            for field, allowed in wanted.items()
            if permission.get(field) not in allowed
        ]

    @staticmethod
    def refers_to(value, function):
        return value in (
            {"Ref": function},
            {"Fn::GetAtt": [function, "Arn"]},
            {"Fn::Sub": f"${{{function}.Arn}}"},
            {"Fn::Sub": f"${{{function}}}"},
        )

    def every_function_has_every_variable(self):
        shared = self.variables_of(self.globals)
        for name, properties in self.functions.items():
            missing = VARIABLES - shared - self.variables_of(properties)
            self.expect(
                not missing,
                f"{name} has all {len(VARIABLES)} environment variables",
                f"{name} lacks the environment variables {sorted(missing)}",
            )

    @staticmethod
    def variables_of(properties):
        return set(properties.get("Environment", {}).get("Variables", {}))

    def every_route_has_an_event(self):
        for name, properties in self.functions.items():
            routes = {
                f"{event['Properties']['Method'].upper()} {event['Properties']['Path']}"
                for event in properties.get("Events", {}).values()
                if event["Type"] == "HttpApi"
            }
            wanted = ROUTES.get(name, set())
            self.expect(
                routes == wanted,
                f"{name} serves {', '.join(sorted(routes)) or 'no route'}",
                f"{name} lacks the routes {sorted(wanted - routes)} and has the unknown routes {sorted(routes - wanted)}",
            )

    def every_statement_is_scoped(self):
        for name, properties in self.functions.items():
            for policy in as_list(properties.get("Policies")):
                if not isinstance(policy, dict) or "Statement" not in policy:
                    self.failures.append(f"{name} has a policy that is not written out as statements: {policy!r}")
                    continue
                for statement in as_list(policy["Statement"]):
                    self.check_statement(name, statement)

    def check_statement(self, function, statement):
        title = f"{function}, statement {statement.get('Sid', '(without Sid)')}"
        actions = as_list(statement.get("Action"))
        faults = [f"it has {field}" for field in ("NotAction", "NotResource") if field in statement]
        faults += [f"the action {action} is a wildcard" for action in actions if "*" in action]
        resources = as_list(statement.get("Resource"))
        if not actions or not resources:
            faults.append("it lacks an action or a resource")
        scopes = []
        for resource in resources:
            scope = self.scope_of(resource, actions)
            scopes.append(scope)
            if scope is None:
                faults.append(f"the resource {resource!r} is not one of the template's tables")
        self.expect(
            not faults,
            f"{title}: {', '.join(actions)} on {', '.join(map(str, scopes))}",
            f"{title}: {'; '.join(faults)}",
        )

    def scope_of(self, resource, actions):
        for table in self.of_type("AWS::DynamoDB::Table"):
            if resource in ({"Fn::GetAtt": [table, "Arn"]}, {"Fn::Sub": f"${{{table}.Arn}}"}):
                return table
            if resource == {"Fn::Sub": f"${{{table}.Arn}}/index/*"}:
                return f"the indexes of {table}"
        text = resource.get("Fn::Sub") if isinstance(resource, dict) else None
        if actions == [INSIGHT_ACTION] and isinstance(text, str) and text.startswith(INSIGHT_RULES):
            return "the rules of Contributor Insights"
        return None


def main():
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "template.yaml"
    contract = Contract(yaml.load(path.read_text(encoding="utf-8"), Loader=CloudFormationLoader))
    contract.check()
    for promise in contract.checked:
        print(f"ok    {promise}")
    for failure in contract.failures:
        print(f"FAIL  {failure}", file=sys.stderr)
    print(f"{len(contract.checked)} hold, {len(contract.failures)} do not")
    return 1 if contract.failures else 0


if __name__ == "__main__":
    sys.exit(main())
