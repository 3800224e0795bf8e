"""What the linters cannot know of template.yaml: that it keeps the promises which the functions and their callers rely on.

Usage: template_contract.py [TEMPLATE]
"""

import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent

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
    "READ_REPLICAS",
}

# Where the functions read them: `read.set(…, "LEASE_MS", …)`.
CONFIGURATION = ROOT / "shared/src/config.rs"
VARIABLE_READ = re.compile(r'\bread\s*\.\s*\w+\([^"]*"([A-Z][A-Z0-9_]*)"')

ROUTES = {
    "WriterFunction": {"POST /items", "POST /items/batch", "PUT /item", "DELETE /item"},
    "ReaderFunction": {"GET /items", "GET /item", "GET /shards"},
    "ShardScalerFunction": set(),
}

METADATA_CHANGES = {"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}
RIGHTS = {
    "WriterFunction": {
        "MainTable": {"dynamodb:PutItem", "dynamodb:DeleteItem", "dynamodb:ConditionCheckItem", "dynamodb:GetItem"},
        "MetadataTable": METADATA_CHANGES,
    },
    "ReaderFunction": {
        "MainTable": {"dynamodb:Query", "dynamodb:GetItem", "dynamodb:BatchGetItem"},
        "MetadataTable": {"dynamodb:GetItem"},
    },
    "ShardScalerFunction": {
        "MainTable": {"dynamodb:DescribeContributorInsights"},
        "MetadataTable": METADATA_CHANGES,
        "the rules of Contributor Insights": {"cloudwatch:GetInsightRuleReport"},
    },
}
# What each function may do besides, where the main table has read replicas.
REPLICA_RIGHTS = {"ReaderFunction": {"the indexes of MainTable": {"dynamodb:Query"}}}

READ_REPLICA_COUNTS = [0, 1, 2, 3]

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


NO_VALUE = {"Ref": "AWS::NoValue"}


class Deployment:
    """The template with its conditions decided, by the parameters' defaults and these values."""

    def __init__(self, template, **values):
        defaults = {name: body.get("Default") for name, body in template.get("Parameters", {}).items()}
        self.parameters = defaults | values
        self.conditions = template.get("Conditions", {})
        self.resources = self.decided(template["Resources"])
        self.globals = self.decided(template.get("Globals", {}).get("Function", {}))

    def of_type(self, kind):
        return {name: body["Properties"] for name, body in self.resources.items() if body["Type"] == kind}

    def decided(self, value):
        if isinstance(value, list):
            return [part for part in map(self.decided, value) if part != NO_VALUE]
        if not isinstance(value, dict):
            return value
        if set(value) == {"Fn::If"}:
            condition, then, otherwise = value["Fn::If"]
            return self.decided(then if self.holds(self.conditions[condition]) else otherwise)
        members = {name: self.decided(member) for name, member in value.items()}
        return {name: member for name, member in members.items() if member != NO_VALUE}

    def holds(self, condition):
        [(kind, operands)] = condition.items()
        if kind == "Condition":
            return self.holds(self.conditions[operands])
        if kind == "Fn::Equals":
            one, other = map(self.text, operands)
            return one == other
        if kind == "Fn::Not":
            return not self.holds(operands[0])
        return {"Fn::And": all, "Fn::Or": any}[kind](map(self.holds, operands))

    def text(self, operand):
        return str(self.parameters[operand["Ref"]] if isinstance(operand, dict) else operand)


class Contract:
    def __init__(self, template):
        self.parameters = template.get("Parameters", {})
        self.deployments = {count: Deployment(template, ReadReplicas=count) for count in READ_REPLICA_COUNTS}
        # What holds for every number of read replicas is looked for where all of the template is deployed.
        whole = self.deployments[READ_REPLICA_COUNTS[-1]]
        self.globals = whole.globals
        self.of_type = whole.of_type
        self.functions = self.of_type("AWS::Serverless::Function")
        self.checked = []
        self.failures = []

    def expect(self, holds, promise, failure):
        if holds:
            self.checked.append(promise)
        else:
            self.failures.append(failure)

    def check(self):
        self.the_functions_are_the_known_ones()
        self.every_alarm_action_is_permitted()
        self.the_variables_are_those_that_the_code_reads()
        self.every_function_has_every_variable()
        self.every_route_has_an_event()
        self.every_statement_is_scoped()
        self.every_function_has_just_its_rights()
        self.the_number_of_read_replicas_is_a_parameter()
        self.every_read_replica_is_a_copy_of_the_table()

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

    def the_variables_are_those_that_the_code_reads(self):
        source = CONFIGURATION.relative_to(ROOT)
        read = set(VARIABLE_READ.findall(CONFIGURATION.read_text(encoding="utf-8")))
        self.expect(
            read == VARIABLES,
            f"{source} reads the {len(read)} variables",
            f"{source} does not read {sorted(VARIABLES - read)} and reads the unknown variables {sorted(read - VARIABLES)}",
        )

    def every_function_has_every_variable(self):
        shared = self.variables_of(self.globals)
        for name, properties in self.functions.items():
            missing = VARIABLES - shared.keys() - self.variables_of(properties).keys()
            self.expect(
                not missing,
                f"{name} has all {len(VARIABLES)} environment variables",
                f"{name} lacks the environment variables {sorted(missing)}",
            )

    @staticmethod
    def variables_of(properties):
        return properties.get("Environment", {}).get("Variables", {})

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

    def every_function_has_just_its_rights(self):
        for name in self.functions:
            faults = {}
            for count, deployment in self.deployments.items():
                wanted = RIGHTS.get(name, {}) | (REPLICA_RIGHTS.get(name, {}) if count else {})
                rights = self.rights_of(deployment.of_type("AWS::Serverless::Function")[name])
                for scope in wanted.keys() | rights.keys():
                    needs, has = wanted.get(scope, set()), rights.get(scope, set())
                    for action in needs ^ has:
                        fault = f"{'lacks' if action in needs else 'does not need'} {action} on {scope}"
                        faults.setdefault(fault, []).append(count)
            told = [f"it {fault} (with {' or '.join(map(str, counts))} read replicas)" for fault, counts in faults.items()]
            self.expect(
                not faults,
                f"{name} has the rights that it needs, and no others",
                f"{name}: {'; '.join(sorted(told))}",
            )

    def rights_of(self, properties):
        rights = {}
        for policy in as_list(properties.get("Policies")):
            for statement in as_list(policy.get("Statement")) if isinstance(policy, dict) else []:
                actions = as_list(statement.get("Action"))
                for resource in as_list(statement.get("Resource")):
                    rights.setdefault(self.scope_of(resource, actions), set()).update(actions)
        return rights

    def the_number_of_read_replicas_is_a_parameter(self):
        parameter = self.parameters.get("ReadReplicas", {})
        allowed, default = parameter.get("AllowedValues"), parameter.get("Default")
        self.expect(
            (allowed, default) == (READ_REPLICA_COUNTS, 0),
            f"ReadReplicas is one of {allowed}, by default {default}",
            f"ReadReplicas should be one of {READ_REPLICA_COUNTS}, by default 0; it is one of {allowed}, by default {default}",
        )

    def every_read_replica_is_a_copy_of_the_table(self):
        for count, deployment in self.deployments.items():
            table = deployment.of_type("AWS::DynamoDB::Table").get("MainTable", {})
            indexes = table.get("GlobalSecondaryIndexes", [])
            names = ",".join(index["IndexName"] for index in indexes)
            faults = [f"the table has the indexes {names!r}"] if len(indexes) != count else []
            if not count and "GlobalSecondaryIndexes" in table:
                faults.append("an empty list of indexes is refused; there should be none")
            for index in indexes:
                if (index["KeySchema"], index["Projection"]) != (table["KeySchema"], {"ProjectionType": "ALL"}):
                    faults.append(f"{index['IndexName']} is not a copy of the table")
            for name, properties in deployment.of_type("AWS::Serverless::Function").items():
                told = (self.variables_of(deployment.globals) | self.variables_of(properties)).get("READ_REPLICAS")
                if told != names:
                    faults.append(f"READ_REPLICAS of {name} is {told!r}, not {names!r}")
            self.expect(
                not faults,
                f"with {count} read replicas, READ_REPLICAS is {names!r}",
                f"with {count} read replicas: {'; '.join(faults)}",
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
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "template.yaml"
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
