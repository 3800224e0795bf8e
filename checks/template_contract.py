"""What the linters cannot know of template.yaml: that it keeps the promises which the functions and their callers rely on.

Usage: template_contract.py [TEMPLATE]
"""

import json
import re
import sys
import tomllib
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
    "WRITES",
    "REGISTER_KEYS",
    "SCALING",
    "SCALING_POLICY",
    "READ_REPLICAS",
    "TTL_ATTRIBUTE",
    "LET_EXPIRE_SECONDS",
    "ADOPT_UNSHARDED",
    "ADOPT_SHARDS",
}
# What the shard-scaler has besides; no other function has it.
SCALER_VARIABLES = {
    "MAX_EVENT_AGE_SECONDS",
    "MAX_READ_UNITS",
    "MAX_WRITE_UNITS",
    "MAX_WARM_READ_UNITS",
    "MAX_WARM_WRITE_UNITS",
    "SHRINK_AFTER_SECONDS",
    "SETTLE_AFTER_SECONDS",
    "DRAIN_SHARE_PERCENT",
    "DRY_RUN",
}

# What the writer has besides, where it is to wake the shard-scaler; no other function has it.
WAKING_VARIABLES = {"SHARD_SCALER_FUNCTION"}

# Where the functions read them: `read.set(…, "LEASE_MS", …)`.
CONFIGURATIONS = {
    ROOT / "shared/src/config.rs": VARIABLES,
    ROOT / "functions/shard-scaler/src/config.rs": SCALER_VARIABLES,
    ROOT / "functions/writer/src/shard_scaler.rs": WAKING_VARIABLES,
}
METADATA_ATTRIBUTES = ROOT / "shared/src/table/metadata_item.rs"
VARIABLE_READ = re.compile(r'\bread\s*\.\s*\w+\([^"]*"([A-Z][A-Z0-9_]*)"')

ROUTES = {
    "WriterFunction": {"POST /items", "POST /items/batch", "PUT /item", "DELETE /item"},
    "ReaderFunction": {"GET /items", "GET /item", "GET /shards"},
    "ShardScalerFunction": set(),
}

METADATA_CHANGES = {"dynamodb:GetItem", "dynamodb:UpdateItem"}
RIGHTS = {
    "WriterFunction": {
        "MainTable": {
            "dynamodb:PutItem",
            "dynamodb:DeleteItem",
            "dynamodb:GetItem",
            "dynamodb:BatchGetItem",
            "dynamodb:Query",
            "dynamodb:Scan",
        },
        "MetadataTable": METADATA_CHANGES | {"dynamodb:Scan"},
    },
    "ReaderFunction": {
        "MainTable": {"dynamodb:Query", "dynamodb:GetItem", "dynamodb:BatchGetItem"},
        "MetadataTable": {"dynamodb:GetItem"},
    },
    "ShardScalerFunction": {
        "MainTable": {
            "dynamodb:DescribeContributorInsights",
            "dynamodb:DescribeTable",
            "dynamodb:Query",
            "dynamodb:Scan",
            "dynamodb:GetItem",
            "dynamodb:PutItem",
            "dynamodb:DeleteItem",
        },
        "the indexes of MainTable": {"dynamodb:DescribeContributorInsights"},
        "MetadataTable": METADATA_CHANGES | {"dynamodb:Scan"},
        "the rules of Contributor Insights": {"cloudwatch:GetInsightRuleReport"},
        "every metric": {"cloudwatch:GetMetricData"},
        "alarm hot-partition": {"cloudwatch:SetAlarmState"},
        "alarm hot-reads": {"cloudwatch:SetAlarmState"},
        "alarm write-limit": {"cloudwatch:SetAlarmState"},
        "alarm read-limit": {"cloudwatch:SetAlarmState"},
    },
}
# What a function may do besides: where the main table has read replicas,
REPLICA_RIGHTS = {"ReaderFunction": {"the indexes of MainTable": {"dynamodb:Query"}}}
# where the shard-scaler may raise its provisioned capacity,
CAPACITY_RIGHTS = {"ShardScalerFunction": {"MainTable": {"dynamodb:UpdateTable"}}}
# where it may raise its warm throughput, and that of its indexes,
TABLE_AND_INDEXES = ("MainTable", "the indexes of MainTable")
WARM_RIGHTS = {"ShardScalerFunction": dict.fromkeys(TABLE_AND_INDEXES, {"dynamodb:UpdateTable"})}
# where the writer wakes the shard-scaler for that, at once,
WAKING_RIGHTS = {"WriterFunction": {"ShardScalerFunction": {"lambda:InvokeFunction"}}}
# and where the tables are encrypted with a key of the customer's.
KEY_RIGHTS = dict.fromkeys(ROUTES, {"the tables' key": {"kms:Decrypt"}})

# Where the functions' own metrics get their names.
NAMESPACE = (ROOT / "functions/api/src/telemetry.rs", re.compile(r'NAMESPACE: &str = "(\w+)"'))
METRIC_SOURCES = ("shared/src", "functions")
METRIC_WRITTEN = re.compile(r'\b(?:counter|gauge|histogram)!\(\s*(?:(?:\w+::)*(\w+)|"(\w+)")')
CONSTANT = re.compile(r'const ([A-Z_]+): &str =\s*"(\w+)"')

SAM_CONFIGURATION = ROOT / "samconfig.toml"

READ_REPLICA_COUNTS = [0, 1, 2, 3]

ALARM_PRINCIPAL = "lambda.alarms.cloudwatch.amazonaws.com"
ALARM_ARN = "arn:${AWS::Partition}:cloudwatch:${AWS::Region}:${AWS::AccountId}:alarm:"

# Contributor Insights makes these rules, so the template cannot refer to them; the permission exists for nothing else.
INSIGHT_ACTION = "cloudwatch:GetInsightRuleReport"
# Its action knows no resources.
METRIC_ACTION = "cloudwatch:GetMetricData"
# Where an existing table takes the place of MainTable.
EXISTING_ARN = "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/${ExistingTable}"
EXISTING_TABLE_CHECK = "Custom::ExistingTable"
EXISTING = {"MainTable": "the existing table", "the indexes of MainTable": "the indexes of the existing table"}
INSIGHT_RULES = "arn:${AWS::Partition}:cloudwatch:${AWS::Region}:${AWS::AccountId}:insight-rule/DynamoDBContributorInsights"


KEY_ARN = "arn:aws:kms:us-east-1:123456789012:key/0b5d2f6e-0000-4000-8000-000000000000"

# Deployments whose rights differ, and what each function may do in them besides.
DEPLOYMENTS = {
    "no read replicas": ({"ReadReplicas": 0}, []),
    "1 read replica": ({"ReadReplicas": 1}, [REPLICA_RIGHTS]),
    "2 read replicas": ({"ReadReplicas": 2}, [REPLICA_RIGHTS]),
    "3 read replicas": ({"ReadReplicas": 3}, [REPLICA_RIGHTS]),
    "fixed capacity": ({"CapacityMode": "provisioned"}, []),
    "fewer shards again": ({"DrainSchedule": "rate(5 minutes)", "ShrinkAfterSeconds": "86400", "SettleAfterSeconds": "86400"}, []),
    "appends only": ({"Writes": "appends"}, []),
    "rising write capacity": ({"CapacityMode": "provisioned", "MaxWriteUnits": 500}, [CAPACITY_RIGHTS]),
    "rising read capacity": ({"CapacityMode": "provisioned", "MaxReadUnits": 500}, [CAPACITY_RIGHTS]),
    "an on-demand maximum": ({"MaxReadUnits": 500, "MaxWriteUnits": 500}, []),
    "writes that may be warmed": ({"MaxWarmWriteUnits": 40000}, [WARM_RIGHTS, WAKING_RIGHTS]),
    "writes that may be warmed, and writers that scale": (
        {"MaxWarmWriteUnits": 40000, "Scaling": "writer"},
        [WARM_RIGHTS, WAKING_RIGHTS],
    ),
    "writes that may be warmed, and alarms that scale": ({"MaxWarmWriteUnits": 40000, "Scaling": "alarm"}, [WARM_RIGHTS]),
    "reads that may be warmed": ({"MaxWarmReadUnits": 40000}, [WARM_RIGHTS]),
    "rising write capacity that may be warmed": (
        {"CapacityMode": "provisioned", "MaxWriteUnits": 500, "MaxWarmWriteUnits": 40000},
        [CAPACITY_RIGHTS, WARM_RIGHTS, WAKING_RIGHTS],
    ),
    "a key of the account's": ({"EncryptionKey": "aws-managed"}, []),
    "a key of the customer's": ({"EncryptionKey": KEY_ARN}, [KEY_RIGHTS]),
    "an existing table": ({"ExistingTable": "orders"}, []),
    "an existing table with everything": (
        {
            "ExistingTable": "orders",
            "ReadReplicas": 3,
            "EncryptionKey": KEY_ARN,
            "TimeToLiveAttribute": "expires",
            "MaxWriteUnits": 500,
            "MaxWarmWriteUnits": 40000,
        },
        [REPLICA_RIGHTS, KEY_RIGHTS, WARM_RIGHTS, WAKING_RIGHTS],
    ),
    "an existing table of provisioned capacity": ({"ExistingTable": "orders", "CapacityMode": "provisioned"}, []),
    "everything": (
        {
            "ReadReplicas": 3,
            "EncryptionKey": KEY_ARN,
            "PeakSchedule": "cron(45 17 ? * FRI *)",
            "PeakPartitionKey": "/a",
            "PeakWriteUnits": 20000,
            "MaxWarmWriteUnits": 40000,
            "DrainSchedule": "rate(5 minutes)",
            "ShrinkAfterSeconds": "86400",
            "NotificationEmail": "a@example.com",
            "NotificationTopicArn": "arn:aws:sns:us-east-1:123456789012:a",
            "StreamView": "KEYS_ONLY",
            "TimeToLiveAttribute": "expires",
            "CorsAllowOrigins": "https://example.com",
        },
        [REPLICA_RIGHTS, KEY_RIGHTS, WARM_RIGHTS, WAKING_RIGHTS],
    ),
}

OPEN = {"ApiAuth": "NONE", "ApiOpenToEveryone": "true"}
JWT = {"ApiAuth": "JWT", "ApiJwtIssuer": "https://example.com", "ApiJwtAudience": "one,two"}
# What every operation of the API asks for.
SECURITY = {"IAM": ({}, [{"AWS_IAM": []}]), "JWT": (JWT, [{"Jwt": []}]), "NONE, said twice": (OPEN, None)}
# What the main table is, by its parameters. None where nothing is said of it.
KMS = {"SSEEnabled": True, "SSEType": "KMS"}
TABLE_OPTIONS = [
    ({}, "BillingMode", "PAY_PER_REQUEST"),
    ({}, "ProvisionedThroughput", None),
    ({}, "OnDemandThroughput", None),
    ({}, "WarmThroughput", None),
    ({}, "TimeToLiveSpecification", None),
    ({}, "StreamSpecification", None),
    ({}, "SSESpecification", {"SSEEnabled": False}),
    ({}, "DeletionProtectionEnabled", "true"),
    ({}, "PointInTimeRecoverySpecification", {"PointInTimeRecoveryEnabled": "true"}),
    ({}, "ContributorInsightsSpecification", {"Enabled": True, "Mode": "THROTTLED_KEYS"}),
    ({"CapacityMode": "provisioned"}, "BillingMode", "PROVISIONED"),
    (
        {"CapacityMode": "provisioned", "ReadUnits": 7},
        "ProvisionedThroughput",
        {"ReadCapacityUnits": 7, "WriteCapacityUnits": 5},
    ),
    ({"CapacityMode": "provisioned", "MaxReadUnits": 9}, "OnDemandThroughput", None),
    ({"MaxReadUnits": 9}, "OnDemandThroughput", {"MaxReadRequestUnits": 9}),
    ({"MaxWriteUnits": 9}, "OnDemandThroughput", {"MaxWriteRequestUnits": 9}),
    (
        {"WarmReadUnits": 13000, "WarmWriteUnits": 5000},
        "WarmThroughput",
        {"ReadUnitsPerSecond": 13000, "WriteUnitsPerSecond": 5000},
    ),
    ({"TimeToLiveAttribute": "expires"}, "TimeToLiveSpecification", {"AttributeName": "expires", "Enabled": True}),
    ({"StreamView": "KEYS_ONLY"}, "StreamSpecification", {"StreamViewType": "KEYS_ONLY"}),
    ({"EncryptionKey": "aws-managed"}, "SSESpecification", KMS),
    ({"EncryptionKey": KEY_ARN}, "SSESpecification", KMS | {"KMSMasterKeyId": KEY_ARN}),
    ({"DeletionProtection": "false"}, "DeletionProtectionEnabled", "false"),
]

# Values that the rules must refuse.
REFUSED = {
    "NONE said once": {"ApiAuth": "NONE"},
    "open with IAM": {"ApiOpenToEveryone": "true"},
    "JWT without issuer": JWT | {"ApiJwtIssuer": ""},
    "JWT without audience": JWT | {"ApiJwtAudience": ""},
    "replicas of provisioned capacity": {"CapacityMode": "provisioned", "ReadReplicas": 1},
    "one warm throughput": {"WarmReadUnits": 20000},
    "shrinking without a schedule": {"ShrinkAfterSeconds": "3600"},
    "settling without a schedule": {"SettleAfterSeconds": "3600"},
    "settling appends": {"SettleAfterSeconds": "3600", "DrainSchedule": "rate(5 minutes)", "Writes": "appends"},
    "settling what is placed at random": {"SettleAfterSeconds": "3600", "DrainSchedule": "rate(5 minutes)", "ShardPlacement": "random"},
    "adoption in two ways": {"AdoptUnsharded": "true", "AdoptShards": 4},
    "a schedule without a key": {"PeakSchedule": "rate(1 day)"},
    "a warm peak without a budget": {"PeakWriteUnits": 20000},
    "equal key names": {"SortKeyName": "partition_key"},
    "a key of the metadata's name": {"PartitionKeyName": "generation"},
    "a key of the name of the metadata's last attribute": {"PartitionKeyName": "short_generation"},
    "rising reads of an existing table": {"ExistingTable": "orders", "CapacityMode": "provisioned", "MaxReadUnits": 500},
    "rising writes of an existing table": {"ExistingTable": "orders", "CapacityMode": "provisioned", "MaxWriteUnits": 500},
    "warmth of an existing table": {"ExistingTable": "orders", "WarmReadUnits": 13000, "WarmWriteUnits": 5000},
    "a stream of an existing table": {"ExistingTable": "orders", "StreamView": "KEYS_ONLY"},
    "a key that expires": {"TimeToLiveAttribute": "sort_key"},
}


def metrics_written():
    """The metrics that the functions write: `counter!(WRITES)` with the constant's text, or `counter!("Writes")`."""
    paths = (path for folder in METRIC_SOURCES for path in (ROOT / folder).rglob("*.rs"))
    codes = [path.read_text(encoding="utf-8").split("#[cfg(test)]")[0] for path in paths]
    everywhere = {name: text for code in codes for name, text in CONSTANT.findall(code)}
    # A constant of the same file comes first, for others may have one of the same name.
    return {
        text or (everywhere | dict(CONSTANT.findall(code)))[name] for code in codes for name, text in METRIC_WRITTEN.findall(code)
    }


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


def references(value):
    """The parameters, resources and pseudo parameters that are named."""
    if isinstance(value, list):
        for part in value:
            yield from references(part)
    elif isinstance(value, dict):
        for name, member in value.items():
            if name == "Ref":
                yield member
            elif name == "Fn::GetAtt":
                yield member.split(".")[0] if isinstance(member, str) else member[0]
            elif name == "Fn::Sub":
                text, own = (member, {}) if isinstance(member, str) else member
                yield from (found for found in re.findall(r"\$\{([A-Za-z0-9:]+)", text) if found not in own)
                yield from references(own)
            elif name == "DependsOn":
                yield from [member] if isinstance(member, str) else member
            else:
                yield from references(member)


class Deployment:
    """The template with its conditions decided, by the parameters' defaults and these values."""

    def __init__(self, template, **values):
        defaults = {name: body.get("Default") for name, body in template.get("Parameters", {}).items()}
        self.parameters = defaults | values
        self.conditions = template.get("Conditions", {})
        self.rules = template.get("Rules", {})
        self.resources = self.present(template["Resources"])
        self.outputs = self.present(template.get("Outputs", {}))
        self.globals = self.decided(template.get("Globals", {}).get("Function", {}))

    def of_type(self, kind):
        return {name: body["Properties"] for name, body in self.resources.items() if body["Type"] == kind}

    def present(self, members):
        return {
            name: self.decided(body)
            for name, body in members.items()
            if "Condition" not in body or self.holds(self.conditions[body["Condition"]])
        }

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
        if kind == "Fn::Contains":
            values, value = operands
            return self.text(value) in map(self.text, values)
        return {"Fn::And": all, "Fn::Or": any}[kind](map(self.holds, operands))

    def valued(self, value):
        """The value with its parameters put in."""
        if isinstance(value, dict):
            if value.keys() == {"Ref"} and value["Ref"] in self.parameters:
                return self.parameters[value["Ref"]]
            return {name: self.valued(member) for name, member in value.items()}
        return [self.valued(part) for part in value] if isinstance(value, list) else value

    def refusals(self):
        """What the template's rules say against the values."""
        said = []
        for rule in self.rules.values():
            if "RuleCondition" not in rule or self.holds(rule["RuleCondition"]):
                said += [each["AssertDescription"] for each in rule["Assertions"] if not self.holds(each["Assert"])]
        return said

    def text(self, operand):
        return str(self.parameters[operand["Ref"]] if isinstance(operand, dict) else operand)


class Contract:
    def __init__(self, template):
        self.parameters = template.get("Parameters", {})
        self.template = template
        self.deployments = {name: Deployment(template, **values) for name, (values, _) in DEPLOYMENTS.items()}
        # What holds for every deployment is looked for where the most of the template is deployed.
        whole = self.deployments["everything"]
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
        self.the_function_that_a_writer_wakes_is_the_scaler()
        self.no_key_is_named_as_the_metadatas_attributes()
        self.every_route_has_an_event()
        self.the_description_has_the_same_routes()
        self.every_sample_event_is_of_a_route()
        self.every_statement_is_scoped()
        self.every_function_has_just_its_rights()
        self.the_number_of_read_replicas_is_a_parameter()
        self.every_read_replica_is_a_copy_of_the_table()
        self.the_main_table_is_as_its_parameters_say()
        self.an_existing_table_takes_the_main_tables_place()
        self.an_existing_table_is_checked_by_the_deployment()
        self.every_alarm_says_what_it_is_for()
        self.the_alarms_that_the_scaler_rearms_are_those_that_wake_it()
        self.the_alarms_that_a_schedule_rearms_are_those_that_wake_the_scaler()
        self.every_schedule_may_wake_the_scaler_and_nothing_else()
        self.the_metrics_of_an_alarm_are_those_of_its_mode()
        self.every_operation_asks_for_the_chosen_credentials()
        self.wrong_combinations_are_refused()
        self.the_scaler_raises_what_auto_scaling_may_raise()
        self.the_table_is_warmed_within_its_budget_only()
        self.concurrency_is_reserved_on_request_only()
        self.the_dashboard_is_json()
        self.the_functions_write_the_metrics_that_are_looked_at()
        self.every_profile_is_deployable()

    def the_functions_are_the_known_ones(self):
        self.expect(
            set(self.functions) == set(ROUTES),
            f"functions: {', '.join(self.functions)}",
            f"the functions should be {sorted(ROUTES)}, the template has {sorted(self.functions)}",
        )

    def no_key_is_named_as_the_metadatas_attributes(self):
        code = METADATA_ATTRIBUTES.read_text(encoding="utf-8")
        listed = re.search(r"attribute_names! \{\n(.*?)\n\}", code, re.DOTALL)[1]
        wanted = set(re.findall(r'\w+ = "(\w+)";', listed))
        refused = [
            set(each["Assert"]["Fn::Not"][0]["Fn::Contains"][0])
            for each in self.template["Rules"]["KeyNames"]["Assertions"]
            if "Fn::Contains" in str(each["Assert"])
        ]
        self.expect(
            refused == [wanted],
            f"PartitionKeyName may be none of the metadata's {len(wanted)} attributes",
            f"KeyNames refuses {refused}, the metadata has {sorted(wanted)}",
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
        for path, variables in CONFIGURATIONS.items():
            source = path.relative_to(ROOT)
            read = set(VARIABLE_READ.findall(path.read_text(encoding="utf-8")))
            self.expect(
                read == variables,
                f"{source} reads the {len(read)} variables",
                f"{source} does not read {sorted(variables - read)} and reads the unknown variables {sorted(read - variables)}",
            )

    def every_function_has_every_variable(self):
        for name in self.functions:
            faults = {}
            for told, deployment in self.deployments.items():
                wanted = VARIABLES | (SCALER_VARIABLES if name == "ShardScalerFunction" else set())
                if name == "WriterFunction" and WAKING_RIGHTS in DEPLOYMENTS[told][1]:
                    wanted = wanted | WAKING_VARIABLES
                own = self.variables_of(deployment.of_type("AWS::Serverless::Function")[name])
                given = self.variables_of(deployment.globals).keys() | own.keys()
                for variable in given ^ wanted:
                    fault = f"{'lacks' if variable in wanted else 'has the unknown'} {variable}"
                    faults.setdefault(fault, []).append(told)
            said = [f"it {fault} (with {' or '.join(where)})" for fault, where in faults.items()]
            self.expect(
                not faults,
                f"{name} has its environment variables, and no others, in {len(self.deployments)} deployments",
                f"{name}: {'; '.join(sorted(said))}",
            )

    def the_function_that_a_writer_wakes_is_the_scaler(self):
        for told, deployment in self.deployments.items():
            writer = self.variables_of(deployment.of_type("AWS::Serverless::Function")["WriterFunction"])
            found = {name: writer[name] for name in WAKING_VARIABLES & writer.keys()}
            self.expect(
                all(self.refers_to(value, "ShardScalerFunction") for value in found.values()),
                f"with {told}, a writer wakes {'the shard-scaler' if found else 'nobody'}",
                f"with {told}, a writer wakes {found}",
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

    def the_description_has_the_same_routes(self):
        description = yaml.safe_load((ROOT / "functions/api/openapi.yaml").read_text(encoding="utf-8"))
        described = {
            f"{method.upper()} {path}"
            for path, operations in description["paths"].items()
            for method in operations
            if method in {"get", "put", "post", "delete", "patch", "head", "options"}
        }
        routes = set().union(*ROUTES.values())
        self.expect(
            described == routes,
            "openapi.yaml describes the routes that have events",
            f"openapi.yaml lacks {sorted(routes - described)}, and describes {sorted(described - routes)} that have no event",
        )

    def every_sample_event_is_of_a_route(self):
        for path in sorted((ROOT / "events").glob("*.json")):
            event = json.loads(path.read_text(encoding="utf-8"))
            context = event.get("requestContext", {}) if isinstance(event, dict) else {}
            if "http" not in context:
                continue
            route = f"{context['http']['method']} {context['http']['path']}"
            function = {"writer": "WriterFunction", "reader": "ReaderFunction"}.get(path.name.split("-")[0])
            self.expect(
                route in ROUTES.get(function, set()) and event.get("version") == "2.0" and event.get("routeKey") == route,
                f"events/{path.name} is an event of {route}",
                f"events/{path.name}: {route} with routeKey {event.get('routeKey')} is no route of {function}",
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
                faults.append(f"the resource {resource!r} is not one of the template's tables, functions, rules or alarms")
        self.expect(
            not faults,
            f"{title}: {', '.join(actions)} on {', '.join(map(str, scopes))}",
            f"{title}: {'; '.join(faults)}",
        )

    def every_function_has_just_its_rights(self):
        for name in self.functions:
            faults = {}
            for told, deployment in self.deployments.items():
                scopes = EXISTING if deployment.parameters["ExistingTable"] else {}
                wanted = {}
                for given in [RIGHTS, *DEPLOYMENTS[told][1]]:
                    for scope, actions in given.get(name, {}).items():
                        wanted.setdefault(scopes.get(scope, scope), set()).update(actions)
                rights = self.rights_of(deployment.of_type("AWS::Serverless::Function")[name])
                for scope in wanted.keys() | rights.keys():
                    needs, has = wanted.get(scope, set()), rights.get(scope, set())
                    for action in needs ^ has:
                        fault = f"{'lacks' if action in needs else 'does not need'} {action} on {scope}"
                        faults.setdefault(fault, []).append(told)
            said = [f"it {fault} (with {' or '.join(where)})" for fault, where in faults.items()]
            self.expect(
                not faults,
                f"{name} has the rights that it needs, and no others, in {len(self.deployments)} deployments",
                f"{name}: {'; '.join(sorted(said))}",
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
        for count in READ_REPLICA_COUNTS:
            deployment = Deployment(self.template, ReadReplicas=count)
            table = deployment.of_type("AWS::DynamoDB::Table").get("MainTable", {})
            indexes = table.get("GlobalSecondaryIndexes", [])
            names = ",".join(index["IndexName"] for index in indexes)
            faults = [f"the table has the indexes {names!r}"] if len(indexes) != count else []
            if not count and "GlobalSecondaryIndexes" in table:
                faults.append("an empty list of indexes is refused; there should be none")
            for index in indexes:
                if (index["KeySchema"], index["Projection"]) != (table["KeySchema"], {"ProjectionType": "ALL"}):
                    faults.append(f"{index['IndexName']} is not a copy of the table")
                if index.get("ContributorInsightsSpecification") != table["ContributorInsightsSpecification"]:
                    faults.append(f"the throttled keys of {index['IndexName']} are not reported as the table's are")
            for name, properties in deployment.of_type("AWS::Serverless::Function").items():
                told = (self.variables_of(deployment.globals) | self.variables_of(properties)).get("READ_REPLICAS")
                if told != names:
                    faults.append(f"READ_REPLICAS of {name} is {told!r}, not {names!r}")
            self.expect(
                not faults,
                f"with {count} read replicas, READ_REPLICAS is {names!r}",
                f"with {count} read replicas: {'; '.join(faults)}",
            )

    def the_main_table_is_as_its_parameters_say(self):
        for values, name, wanted in TABLE_OPTIONS:
            deployment = Deployment(self.template, **values)
            tables = deployment.of_type("AWS::DynamoDB::Table")
            found = deployment.valued(tables["MainTable"].get(name))
            told = ", ".join(f"{parameter} {value}" for parameter, value in values.items()) or "the defaults"
            self.expect(
                found == wanted,
                f"with {told}, {name} of the main table is {wanted}",
                f"with {told}, {name} of the main table is {found}, not {wanted}",
            )
            if name == "SSESpecification" and tables["MetadataTable"][name] != tables["MainTable"][name]:
                self.failures.append(f"with {told}, the metadata table is encrypted otherwise")

    def an_existing_table_takes_the_main_tables_place(self):
        for told, deployment in self.deployments.items():
            if not deployment.parameters["ExistingTable"]:
                continue
            faults = [
                f"{name} is made"
                for name, body in deployment.resources.items()
                if name == "MainTable" or body["Type"].startswith("AWS::ApplicationAutoScaling::")
            ]
            members = deployment.resources | deployment.outputs | {"the globals": deployment.globals}
            faults += [f"{name} refers to MainTable" for name, body in members.items() if "MainTable" in references(body)]
            for name, properties in deployment.of_type("AWS::Serverless::Function").items():
                given = (self.variables_of(deployment.globals) | self.variables_of(properties)).get("TABLE_NAME")
                if given != {"Ref": "ExistingTable"}:
                    faults.append(f"TABLE_NAME of {name} is {given}")
            self.expect(
                not faults,
                f"with {told}, no main table is made, and every function has the existing one",
                f"with {told}: {'; '.join(faults)}",
            )

    def an_existing_table_is_checked_by_the_deployment(self):
        wanted = {
            "ServiceToken": {"Fn::GetAtt": ["ShardScalerFunction", "Arn"]},
            "ServiceTimeout": 60,
            "TableName": {"Ref": "ExistingTable"},
        } | {name: {"Ref": name} for name in ("PartitionKeyName", "SortKeyName", "SortKeyType")}
        for told, deployment in self.deployments.items():
            found = deployment.of_type(EXISTING_TABLE_CHECK)
            expected = [wanted] if deployment.parameters["ExistingTable"] else []
            waiting = [name for name, body in deployment.resources.items() if not found.keys().isdisjoint(references(body))]
            self.expect(
                list(found.values()) == expected and not waiting,
                f"with {told}, the shard-scaler checks {len(expected)} existing tables, and nothing waits for that",
                f"with {told}, the checks of an existing table are {found}, not {expected}; for them wait {waiting}",
            )

    def every_alarm_says_what_it_is_for(self):
        for name, properties in self.of_type("AWS::CloudWatch::Alarm").items():
            lacking = [
                field
                for field in ("AlarmName", "AlarmDescription", "TreatMissingData", "AlarmActions")
                if not properties.get(field)
            ]
            self.expect(not lacking, f"alarm {name} is named, described and acts", f"alarm {name} lacks {lacking}")

    def waking_alarms(self, deployment):
        return {
            name: properties
            for name, properties in deployment.of_type("AWS::CloudWatch::Alarm").items()
            if any(self.refers_to(action, "ShardScalerFunction") for action in properties["AlarmActions"])
        }

    def the_alarms_that_the_scaler_rearms_are_those_that_wake_it(self):
        for told, deployment in self.deployments.items():
            scaler = deployment.of_type("AWS::Serverless::Function")["ShardScalerFunction"]
            rearmed = {scope for scope, actions in self.rights_of(scaler).items() if "cloudwatch:SetAlarmState" in actions}
            woken = {
                "alarm " + properties["AlarmName"]["Fn::Sub"].removeprefix("${AWS::StackName}-")
                for properties in self.waking_alarms(deployment).values()
            }
            self.expect(
                rearmed == woken,
                f"with {told}, the shard-scaler re-arms the alarms that wake it: {len(woken)}",
                f"with {told}, the shard-scaler re-arms {sorted(rearmed)} and is woken by {sorted(woken)}",
            )

    def the_alarms_that_a_schedule_rearms_are_those_that_wake_the_scaler(self):
        """Otherwise an alarm whose event the shard-scaler lost would stay in ALARM, and act no more."""
        for told, deployment in self.deployments.items():
            rearmed = [
                (schedule["ScheduleExpression"], set(event["alarms"]))
                for schedule in deployment.of_type("AWS::Scheduler::Schedule").values()
                if (event := self.event_of(schedule))["action"] == "rearm"
            ]
            woken = {alarm["AlarmName"]["Fn::Sub"] for alarm in self.waking_alarms(deployment).values()}
            self.expect(
                rearmed == [("rate(5 minutes)", woken)],
                f"with {told}, a schedule re-arms the alarms that wake the shard-scaler: {len(woken)}",
                f"with {told}, the alarms {sorted(woken)} wake the shard-scaler, and schedules re-arm {rearmed}",
            )

    @staticmethod
    def event_of(schedule):
        text = schedule["Target"]["Input"]
        text = text["Fn::Sub"] if isinstance(text, dict) else text
        return json.loads(re.sub(r"\$\{Peak(?:Shards|WriteUnits)\}", "1", text))

    def every_schedule_may_wake_the_scaler_and_nothing_else(self):
        function, queue = ({"Fn::GetAtt": [name, "Arn"]} for name in ("ShardScalerFunction", "LostEventsQueue"))
        wanted = [("lambda:InvokeFunction", function), ("sqs:SendMessage", queue)]
        for name, schedule in self.of_type("AWS::Scheduler::Schedule").items():
            target = schedule["Target"]
            [role, _] = target["RoleArn"]["Fn::GetAtt"]
            role = self.of_type("AWS::IAM::Role").get(role, {})
            rights = [
                (statement["Action"], statement["Resource"])
                for policy in role.get("Policies", [])
                for statement in policy["PolicyDocument"]["Statement"]
            ]
            trusted = [statement["Principal"] for statement in role.get("AssumeRolePolicyDocument", {}).get("Statement", [])]
            self.expect(
                (target["Arn"], target["DeadLetterConfig"]) == (function, {"Arn": queue})
                and rights == wanted
                and trusted == [{"Service": "scheduler.amazonaws.com"}],
                f"{name} may wake the shard-scaler, and nothing else",
                f"{name} goes to {target['Arn']} or {target['DeadLetterConfig']}, for {trusted} with the rights {rights}",
            )

    def the_metrics_of_an_alarm_are_those_of_its_mode(self):
        limits = {
            "fixed capacity": "ProvisionedThroughput",
            "an on-demand maximum": "MaxOnDemandThroughput",
            "no read replicas": "AccountLimit",
        }
        for told, limit in limits.items():
            metrics = {alarm["MetricName"] for alarm in self.waking_alarms(self.deployments[told]).values()}
            wanted = {
                f"{kind}{cause}ThrottleEvents" for kind in ("Read", "Write") for cause in ("KeyRangeThroughput", limit)
            }
            self.expect(
                metrics == wanted,
                f"with {told}, {', '.join(sorted(wanted))} wake the shard-scaler",
                f"with {told}, the shard-scaler is woken by {sorted(metrics)}, not by {sorted(wanted)}",
            )

    def every_operation_asks_for_the_chosen_credentials(self):
        routes = set().union(*ROUTES.values())
        for told, (values, security) in SECURITY.items():
            deployment = Deployment(self.template, **values)
            body = deployment.of_type("AWS::Serverless::HttpApi")["Api"]["DefinitionBody"]
            operations = {
                f"{method.upper()} {path}": operation
                for path, methods in body["paths"].items()
                for method, operation in methods.items()
            }
            faults = []
            if operations.keys() != routes:
                faults.append(f"its operations are {sorted(operations)}")
            for route, operation in operations.items():
                if operation.get("security") != security:
                    faults.append(f"{route} asks for {operation.get('security')}")
                uri = operation["x-amazon-apigateway-integration"]["uri"]["Fn::Sub"]
                if not any(f"${{{name}.Arn}}" in uri for name, served in ROUTES.items() if route in served):
                    faults.append(f"{route} goes to {uri}")
            schemes = set(body.get("components", {}).get("securitySchemes", {}))
            if schemes != {scheme for each in security or [] for scheme in each}:
                faults.append(f"it declares {sorted(schemes)}")
            self.expect(
                not faults,
                f"with ApiAuth {told}, all {len(operations)} operations ask for {security}",
                f"with ApiAuth {told}: {'; '.join(faults)}",
            )

    def wrong_combinations_are_refused(self):
        for told, values in REFUSED.items():
            refusals = Deployment(self.template, **values).refusals()
            self.expect(
                len(refusals) == 1,
                f"refused, {told}: {' '.join(refusals)}",
                f"{told} should be refused by one rule, and is by {refusals}",
            )
        for told, values in [(told, values) for told, (values, _) in (DEPLOYMENTS | SECURITY).items()]:
            refusals = Deployment(self.template, **values).refusals()
            self.expect(not refusals, f"not refused: {told}", f"{told} is refused: {refusals}")

    def the_scaler_raises_what_auto_scaling_may_raise(self):
        for told, deployment in self.deployments.items():
            scaler = deployment.of_type("AWS::Serverless::Function")["ShardScalerFunction"]
            targets = {
                target["ScalableDimension"].removeprefix("dynamodb:table:"): target["MaxCapacity"]
                for target in deployment.of_type("AWS::ApplicationAutoScaling::ScalableTarget").values()
            }
            variables = self.variables_of(scaler)
            raised = {
                f"{kind}CapacityUnits": variables[f"MAX_{kind.upper()}_UNITS"]
                for kind in ("Read", "Write")
                if variables[f"MAX_{kind.upper()}_UNITS"] != 0
            }
            policies = deployment.of_type("AWS::ApplicationAutoScaling::ScalingPolicy")
            self.expect(
                raised == targets and len(policies) == len(targets),
                f"with {told}, auto scaling and the shard-scaler raise {', '.join(sorted(targets)) or 'nothing'}",
                f"with {told}, auto scaling raises {targets} by {len(policies)} policies, the shard-scaler {raised}",
            )

    def the_table_is_warmed_within_its_budget_only(self):
        """A raise is charged, and cannot be undone: nothing is raised by default."""
        for kind in ("Read", "Write"):
            name, variable = f"MaxWarm{kind}Units", f"MAX_WARM_{kind.upper()}_UNITS"
            scaler = self.functions["ShardScalerFunction"]
            default, found = self.parameters[name]["Default"], self.variables_of(scaler)[variable]
            self.expect(
                (default, found) == (0, {"Ref": name}),
                f"{variable} is {name}, by default 0",
                f"{variable} is {found}, not {name}, whose default is {default}",
            )

    def concurrency_is_reserved_on_request_only(self):
        """A new account's quota rejects any reservation, and with it the deployment."""
        for values, wanted in (({}, None), ({"ReserveShardScalerConcurrency": "true"}, 1)):
            functions = Deployment(self.template, **values).of_type("AWS::Serverless::Function")
            reserved = {name: each.get("ReservedConcurrentExecutions") for name, each in functions.items()}
            told = ", ".join(f"{parameter} {value}" for parameter, value in values.items()) or "the defaults"
            self.expect(
                reserved == dict.fromkeys(ROUTES) | {"ShardScalerFunction": wanted},
                f"with {told}, the shard-scaler reserves {wanted or 'no'} concurrent execution, the others none",
                f"with {told}, the functions reserve {reserved}",
            )

    def the_dashboard_is_json(self):
        for name, properties in self.of_type("AWS::CloudWatch::Dashboard").items():
            try:
                told = f"{len(json.loads(properties['DashboardBody']['Fn::Sub'][0])['widgets'])} widgets"
            except ValueError as error:
                self.failures.append(f"the body of {name} is not JSON: {error}")
            else:
                self.checked.append(f"{name} shows {told}")

    def the_functions_write_the_metrics_that_are_looked_at(self):
        path, pattern = NAMESPACE
        [namespace], written = set(pattern.findall(path.read_text(encoding="utf-8"))), metrics_written()
        looked_at = {
            alarm["MetricName"]
            for alarm in self.of_type("AWS::CloudWatch::Alarm").values()
            if alarm.get("Namespace") == namespace
        }
        for properties in self.of_type("AWS::CloudWatch::Dashboard").values():
            looked_at |= set(re.findall(rf'\["{namespace}","(\w+)"', properties["DashboardBody"]["Fn::Sub"][0]))
        self.expect(
            "KeysAtMaxShards" in looked_at and looked_at <= written,
            f"the functions write {', '.join(sorted(looked_at))} in {namespace}",
            f"of {sorted(looked_at)} in {namespace}, the functions write only {sorted(written & looked_at)}",
        )

    def every_profile_is_deployable(self):
        profiles = tomllib.loads(SAM_CONFIGURATION.read_text(encoding="utf-8"))
        named = {name for name in profiles if name not in ("version", "default")}
        self.expect(
            named == {"development", "production"},
            f"{SAM_CONFIGURATION.name} has the profiles {', '.join(sorted(named))}",
            f"{SAM_CONFIGURATION.name} should have the profiles development and production, it has {sorted(named)}",
        )
        for profile in named:
            overrides = profiles[profile].get("deploy", {}).get("parameters", {}).get("parameter_overrides", [])
            values = dict(override.split("=", 1) for override in overrides)
            faults = [fault for name, value in values.items() if (fault := self.fault_of(name, value))]
            faults = faults or Deployment(self.template, **values).refusals()
            self.expect(not faults, f"profile {profile} is deployable", f"profile {profile}: {'; '.join(faults)}")

    def fault_of(self, name, value):
        parameter = self.parameters.get(name)
        if parameter is None:
            return f"{name} is no parameter"
        if "AllowedValues" in parameter and value not in map(str, parameter["AllowedValues"]):
            return f"{name} is {value}; allowed: {parameter['AllowedValues']}"
        if "AllowedPattern" in parameter and not re.fullmatch(parameter["AllowedPattern"], value):
            return f"{name} is {value!r}, which does not match {parameter['AllowedPattern']}"
        return None

    def scope_of(self, resource, actions):
        for table in self.of_type("AWS::DynamoDB::Table"):
            if resource in ({"Fn::GetAtt": [table, "Arn"]}, {"Fn::Sub": f"${{{table}.Arn}}"}):
                return table
            if resource == {"Fn::Sub": f"${{{table}.Arn}}/index/*"}:
                return f"the indexes of {table}"
        for function in self.functions:
            if resource == {"Fn::GetAtt": [function, "Arn"]}:
                return function
        text = resource.get("Fn::Sub") if isinstance(resource, dict) else None
        if text == EXISTING_ARN:
            return EXISTING["MainTable"]
        if text == EXISTING_ARN + "/index/*":
            return EXISTING["the indexes of MainTable"]
        if actions == [INSIGHT_ACTION] and isinstance(text, str) and text.startswith(INSIGHT_RULES):
            return "the rules of Contributor Insights"
        if actions == [METRIC_ACTION] and resource == "*":
            return "every metric"
        if isinstance(text, str) and text.startswith(ALARM_ARN + "${AWS::StackName}-"):
            return "alarm " + text.removeprefix(ALARM_ARN + "${AWS::StackName}-")
        if resource == {"Ref": "EncryptionKey"}:
            return "the tables' key"
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
