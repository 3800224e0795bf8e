"""Creates the template as a stack on moto, in process: its resources can be created, and its references resolve.

Usage: stack.py [TEMPLATE]

moto has no CloudFormation model of some types that the template uses. Here such a resource goes to the service's own API, whose
description in botocore checks its properties, and to moto's implementation of that service where it has one.
"""

import ast
import io
import json
import logging
import re
import sys
import warnings
import zipfile
from pathlib import Path

import boto3
import yaml
from botocore.exceptions import BotoCoreError, ClientError
from moto import mock_aws
from moto.cloudformation import parsing
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator

from template_contract import EXISTING_TABLE_CHECK, KEY_ARN, ROOT, SECURITY, CloudFormationLoader, Deployment, references

REGION = "us-east-1"
ACCOUNT = "123456789012"
STACK = "checked"
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:own"
FUNCTIONS = ("WriterFunction", "ReaderFunction", "ShardScalerFunction")
EXISTING = "orders"
CODE = {"Bucket": "code", "Key": "function.zip"}

SCHEDULED = ROOT / "events/shard-scaler-schedule-set.json"

COMBINATIONS = {
    "defaults": {},
    "provisioned, rising": {"CapacityMode": "provisioned", "MaxReadUnits": "50", "MaxWriteUnits": "100", "DryRun": "true"},
    "provisioned, fixed": {"CapacityMode": "provisioned", "ReadUnits": "7", "WriteUnits": "8"},
    "on-demand maximum, warm": {"MaxWriteUnits": "9000", "WarmReadUnits": "13000", "WarmWriteUnits": "5000"},
    "may be warmed": {"MaxWarmWriteUnits": "40000", "MaxWarmReadUnits": "120000"},
    "may be warmed, by alarms": {"MaxWarmWriteUnits": "40000", "Scaling": "alarm"},
    "reads may be warmed": {"MaxWarmReadUnits": "120000"},
    "three read replicas": {"ReadReplicas": "3", "SortKeyType": "N", "SortKeyName": "at"},
    "JWT, CORS": SECURITY["JWT"][0] | {"CorsAllowOrigins": "https://a.example,https://b.example"},
    "NONE said twice": SECURITY["NONE, said twice"][0],
    "the account's key, told by mail": {"EncryptionKey": "aws-managed", "NotificationEmail": "a@example.com"},
    "everything optional": {
        "EncryptionKey": KEY_ARN,
        "NotificationTopicArn": TOPIC,
        "PeakSchedule": "cron(45 17 ? * FRI *)",
        "PeakTimezone": "Europe/London",
        "PeakPartitionKey": "/shared/firetvGen2.txt",
        "PeakWriteUnits": "20000",
        "MaxWarmWriteUnits": "20000",
        "DrainSchedule": "rate(1 minute)",
        "ShrinkAfterSeconds": "86400",
        "SettleAfterSeconds": "3600",
        "StreamView": "NEW_AND_OLD_IMAGES",
        "TimeToLiveAttribute": "expires",
        "ReserveShardScalerConcurrency": "true",
    },
    "an existing table": {"ExistingTable": EXISTING, "AdoptUnsharded": "true"},
    "an existing table of provisioned capacity": {"ExistingTable": EXISTING, "CapacityMode": "provisioned", "AdoptShards": "10"},
    "appends only": {"Writes": "appends"},
    "an existing table, everything optional": {
        "ExistingTable": EXISTING,
        "ReadReplicas": "3",
        "EncryptionKey": KEY_ARN,
        "MaxWriteUnits": "9000",
        "MaxWarmWriteUnits": "9000",
        "TimeToLiveAttribute": "expires",
    },
    "nothing optional": {
        "Dashboard": "false",
        "DeletionProtection": "false",
        "PointInTimeRecovery": "false",
    },
}


# It counts what it translated, and complains that nobody collects the counts.
logging.getLogger("samtranslator.metrics").setLevel(logging.ERROR)


def client(service):
    return boto3.client(service, region_name=REGION)


def typed(shape, value):
    """CloudFormation takes numbers and booleans as text too, botocore does not."""
    kind = shape.type_name
    if kind == "structure" and isinstance(value, dict):
        return {name: typed(shape.members[name], each) if name in shape.members else each for name, each in value.items()}
    if kind == "list" and isinstance(value, list):
        return [typed(shape.member, each) for each in value if each is not None]
    if kind == "map" and isinstance(value, dict):
        return {name: typed(shape.value, each) for name, each in value.items()}
    if isinstance(value, str):
        if kind in ("integer", "long"):
            return int(value)
        if kind in ("float", "double"):
            return float(value)
        if kind == "boolean":
            return {"true": True, "false": False}[value]
    return value


def call(service, operation, **properties):
    api = client(service)
    shape = api.meta.service_model.operation_model(api.meta.method_to_api_mapping[operation]).input_shape
    return getattr(api, operation)(**typed(shape, properties))


class Through:
    """A resource that was created through its service's API, as moto's CloudFormation wants it."""

    made = {}

    def __init__(self, properties, identity, attributes):
        self.properties, self.physical_resource_id, self.attributes = properties, identity, attributes

    def get_cfn_attribute(self, name):
        return self.attributes[name]

    def has_cfn_attr(self, name):
        return name in self.attributes

    def is_created(self):
        return True


def through(kind):
    """Makes a creating function moto's model of a type. It returns the resource's identity and its attributes."""

    class Model:
        @staticmethod
        def create_from_cloudformation_json(resource_name, cloudformation_json, *_, **__):
            properties = cloudformation_json.get("Properties", {})
            made = Through(properties, *Model.create(resource_name, properties))
            Through.made.setdefault(kind, []).append(made)
            return made

        has_cfn_attr = staticmethod(lambda name: True)

    def register(create):
        Model.create = staticmethod(create)
        parsing.get_model_map()[kind] = Model
        if kind.startswith("Custom::"):
            # Otherwise moto runs the function in a container.
            parsing.CustomModel = Model
        return create

    return register


@through("AWS::CloudWatch::Alarm")
def alarm(_, properties):
    call("cloudwatch", "put_metric_alarm", **properties)
    name = properties["AlarmName"]
    [found] = call("cloudwatch", "describe_alarms", AlarmNames=[name])["MetricAlarms"]
    return name, {"Arn": found["AlarmArn"]}


@through("AWS::ApiGatewayV2::Api")
def api(_, properties):
    properties = dict(properties)
    body = properties.pop("Body")
    # moto imports into an API that exists only.
    identity = call("apigatewayv2", "create_api", Name=body["info"]["title"], ProtocolType="HTTP")["ApiId"]
    call("apigatewayv2", "reimport_api", ApiId=identity, Body=json.dumps(body), **properties)
    return identity, {"ApiId": identity, "ApiEndpoint": f"https://{identity}.execute-api.{REGION}.amazonaws.com"}


@through("AWS::ApiGatewayV2::Stage")
def stage(_, properties):
    call("apigatewayv2", "create_stage", **properties)
    return properties["StageName"], {}


@through("AWS::ApplicationAutoScaling::ScalableTarget")
def scalable_target(_, properties):
    call("application-autoscaling", "register_scalable_target", **properties)
    fields = ("ResourceId", "ScalableDimension", "ServiceNamespace")
    return "|".join(properties[field] for field in fields), {}


@through("AWS::ApplicationAutoScaling::ScalingPolicy")
def scaling_policy(_, properties):
    properties = dict(properties)
    resource, dimension, namespace = properties.pop("ScalingTargetId").split("|")
    target = {"ResourceId": resource, "ScalableDimension": dimension, "ServiceNamespace": namespace}
    return call("application-autoscaling", "put_scaling_policy", **target, **properties)["PolicyARN"], {}


@through("AWS::Lambda::EventInvokeConfig")
def event_invoke_config(name, properties):
    call("lambda", "put_function_event_invoke_config", **properties)
    return name, {}


@through("AWS::Scheduler::Schedule")
def schedule(name, properties):
    return name[:64], {"Arn": call("scheduler", "create_schedule", Name=name[:64], **properties)["ScheduleArn"]}


@through(EXISTING_TABLE_CHECK)
def existing_table_check(_, properties):
    call("dynamodb", "describe_table", TableName=properties["TableName"])
    return properties["TableName"], {}


def transformed(path, values):
    """The template as the transform leaves it, its code in a bucket as `sam deploy` puts it there."""
    template = yaml.load(path.read_text(encoding="utf-8"), Loader=CloudFormationLoader)
    template["Globals"]["Function"]["CodeUri"] = f"s3://{CODE['Bucket']}/{CODE['Key']}"
    return Translator({}, Parser(), boto_session=boto3.Session(region_name=REGION)).translate(template, values)


def existing_table(values):
    """A table of another program, before the stack is there."""
    keys = [(values["PartitionKeyName"], "HASH", "S"), (values["SortKeyName"], "RANGE", values["SortKeyType"])]
    call(
        "dynamodb",
        "create_table",
        TableName=values["ExistingTable"],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, _, kind in keys],
        KeySchema=[{"AttributeName": name, "KeyType": role} for name, role, _ in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    return call("dynamodb", "describe_table", TableName=values["ExistingTable"])["Table"]


class Stack:
    def __init__(self, path, values):
        source = yaml.load(path.read_text(encoding="utf-8"), Loader=CloudFormationLoader)
        self.values = {name: str(body["Default"]) for name, body in source["Parameters"].items()} | values
        template = transformed(path, self.values)
        self.before = existing_table(self.values) if self.values["ExistingTable"] else None
        self.deployment = Deployment(template, **self.values)
        self.wanted = self.deployment.resources
        parameters = [{"ParameterKey": name, "ParameterValue": value} for name, value in self.values.items()]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            client("cloudformation").create_stack(
                StackName=STACK, TemplateBody=json.dumps(template), Parameters=parameters, Capabilities=["CAPABILITY_IAM"]
            )
        self.skipped = sorted({str(each.message) for each in caught if "not supported by moto" in str(each.message)})
        [described] = client("cloudformation").describe_stacks(StackName=STACK)["Stacks"]
        self.status = described["StackStatus"]
        self.outputs = {each["OutputKey"]: each["OutputValue"] for each in described.get("Outputs", [])}
        listed = client("cloudformation").list_stack_resources(StackName=STACK)["StackResourceSummaries"]
        # What a condition leaves out is listed without a name.
        self.physical = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in listed if each["LogicalResourceId"]}
        self.table = self.values["ExistingTable"] or self.physical["MainTable"]

    def faults(self):
        """Everything that is not as it should be."""
        yield from (f"moto skipped a resource: {each}" for each in self.skipped)
        if self.status != "CREATE_COMPLETE":
            yield f"the stack is {self.status}"
        if missing := self.wanted.keys() - self.physical.keys():
            yield f"not created: {sorted(missing)}"
        if unknown := self.physical.keys() - self.wanted.keys():
            yield f"created against its condition: {sorted(unknown)}"
        for name, value in self.outputs.items():
            if not value or "${" in value:
                yield f"output {name} is {value!r}"
        for name, value in self.described().items():
            if left := re.findall(r"\$\{(?!context)[^}]*\}|\"(?:Ref|Fn::\w+)\"", value):
                yield f"{name} holds the unresolved {left}"
        yield from self.reference_faults()
        yield from self.table_faults()
        yield from self.function_faults()
        yield from self.wiring_faults()
        yield from self.existing_table_faults()

    def reference_faults(self):
        """moto leaves out what it cannot resolve in some places, such as outputs."""
        known = self.wanted.keys() | self.values.keys()
        for place, body in (self.wanted | self.deployment.outputs).items():
            for name in references(body):
                if name not in known and not name.startswith("AWS::"):
                    yield f"{place} refers to {name}, which is not there"

    def described(self):
        """What was created, as text."""
        text = {
            f"{kind} {made.physical_resource_id}": json.dumps(made.properties)
            for kind, all_made in Through.made.items()
            for made in all_made
        }
        for name in FUNCTIONS:
            configuration = client("lambda").get_function_configuration(FunctionName=self.physical[name])
            text[name] = json.dumps(configuration, default=str)
            text[f"{name}'s role"] = json.dumps(self.statements(f"{name}Role"))
        if "Overview" in self.physical:
            text["Overview"] = client("cloudwatch").get_dashboard(DashboardName=STACK)["DashboardBody"]
        return text

    def statements(self, role):
        iam = client("iam")
        names = iam.list_role_policies(RoleName=self.physical[role])["PolicyNames"]
        documents = [iam.get_role_policy(RoleName=self.physical[role], PolicyName=name)["PolicyDocument"] for name in names]
        # moto keeps the document of a stack's role as Python writes it.
        documents = [ast.literal_eval(document) if isinstance(document, str) else document for document in documents]
        # Nor does it drop AWS::NoValue from a list.
        return [statement for document in documents for statement in document["Statement"] if statement]

    def table_faults(self):
        said = self.values
        dynamodb = client("dynamodb")
        table = dynamodb.describe_table(TableName=self.table)["Table"]
        tables = {self.table, self.physical["MetadataTable"]}
        if tables != (found := set(dynamodb.list_tables()["TableNames"])):
            yield f"there are the tables {sorted(found)}, not {sorted(tables)}"
        looked_at = {
            dimension["Value"]
            for alarm in client("cloudwatch").describe_alarms(AlarmNamePrefix=f"{STACK}-")["MetricAlarms"]
            for dimension in alarm.get("Dimensions", [])
            if dimension["Name"] == "TableName"
        }
        if looked_at != {self.table}:
            yield f"the alarms look at the tables {sorted(looked_at)}"
        if self.outputs.get("MainTableName") != self.table:
            yield f"the output MainTableName is {self.outputs.get('MainTableName')}"
        provisioned = said["CapacityMode"] == "provisioned"
        units = table.get("ProvisionedThroughput", {})
        expected = {
            "keys": ([said["PartitionKeyName"], said["SortKeyName"]], [key["AttributeName"] for key in table["KeySchema"]]),
            "indexes": (int(said["ReadReplicas"]), len(table.get("GlobalSecondaryIndexes", []))),
            "units": (
                [int(said["ReadUnits"]), int(said["WriteUnits"])] if provisioned else [0, 0],
                [units.get("ReadCapacityUnits", 0), units.get("WriteCapacityUnits", 0)],
            ),
            "stream": (
                None if said["StreamView"] == "none" else said["StreamView"],
                table.get("StreamSpecification", {}).get("StreamViewType"),
            ),
            "protection": (said["DeletionProtection"], str(table["DeletionProtectionEnabled"]).lower()),
        }
        if self.before:
            expected = {"description": (self.before, table)}
        for what, (wanted, found) in expected.items():
            if wanted != found:
                yield f"the main table's {what}: {found}, not {wanted}"
        targets = client("application-autoscaling").describe_scalable_targets(ServiceNamespace="dynamodb")["ScalableTargets"]
        found = {target["ScalableDimension"].split(":")[-1]: (target["ResourceId"], target["MaxCapacity"]) for target in targets}
        wanted = {
            f"{kind}CapacityUnits": (f"table/{self.table}", int(said[f"Max{kind}Units"]))
            for kind in ("Read", "Write")
            if provisioned and said[f"Max{kind}Units"] != "0"
        }
        if found != wanted:
            yield f"auto scaling has {found}, not {wanted}"

    def function_faults(self):
        main, metadata = (
            client("dynamodb").describe_table(TableName=name)["Table"]["TableArn"] for name in (self.table, self.physical["MetadataTable"])
        )
        for name in FUNCTIONS:
            configuration = client("lambda").get_function_configuration(FunctionName=self.physical[name])
            variables = configuration["Environment"]["Variables"]
            if (variables["TABLE_NAME"], variables["METADATA_TABLE_NAME"]) != (self.table, self.physical["MetadataTable"]):
                yield f"{name} is told of the tables {variables['TABLE_NAME']} and {variables['METADATA_TABLE_NAME']}"
            reserved = client("lambda").get_function_concurrency(FunctionName=self.physical[name]).get("ReservedConcurrentExecutions")
            wanted = 1 if name == "ShardScalerFunction" and self.values["ReserveShardScalerConcurrency"] == "true" else None
            if reserved != wanted:
                yield f"{name} has a reserved concurrency of {reserved}, not {wanted}"
            scopes = {
                scope
                for statement in self.statements(f"{name}Role")
                for scope in (statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]])
            }
            if not {main, metadata} <= scopes:
                yield f"{name} has rights on {sorted(scopes)}, not on both tables"
        yield from self.warming_faults(main)

    def warming_faults(self, main):
        budget = {f"MAX_WARM_{kind.upper()}_UNITS": self.values[f"MaxWarm{kind}Units"] for kind in ("Read", "Write")}
        configuration = client("lambda").get_function_configuration(FunctionName=self.physical["ShardScalerFunction"])
        variables = configuration["Environment"]["Variables"]
        # moto makes numbers of them.
        if found := {name: variables.get(name) for name, units in budget.items() if str(variables.get(name)) != units}:
            yield f"the shard-scaler has {found}, not {budget}"
        raising = [
            sorted(statement["Resource"])
            for statement in self.statements("ShardScalerFunctionRole")
            if statement["Action"] == "dynamodb:UpdateTable" and isinstance(statement["Resource"], list)
        ]
        wanted = [[main, f"{main}/index/*"]] if set(budget.values()) != {"0"} else []
        if raising != wanted:
            yield f"the shard-scaler may raise the warm throughput of {raising}, not of {wanted}"
        yield from self.waking_faults()

    def waking_faults(self):
        scaler = client("lambda").get_function_configuration(FunctionName=self.physical["ShardScalerFunction"])
        is_woken = self.values["MaxWarmWriteUnits"] != "0" and self.values["Scaling"] != "alarm"
        for name in FUNCTIONS:
            woken = is_woken and name == "WriterFunction"
            configuration = client("lambda").get_function_configuration(FunctionName=self.physical[name])
            found = configuration["Environment"]["Variables"].get("SHARD_SCALER_FUNCTION")
            wanted = scaler["FunctionName"] if woken else None
            if found != wanted:
                yield f"{name} wakes {found}, not {wanted}"
            invoking = [each["Resource"] for each in self.statements(f"{name}Role") if each["Action"] == "lambda:InvokeFunction"]
            if invoking != ([scaler["FunctionArn"]] if woken else []):
                yield f"{name} may invoke {invoking}"

    def wiring_faults(self):
        function = client("lambda").get_function(FunctionName=self.physical["ShardScalerFunction"])["Configuration"]["FunctionArn"]
        policy = json.loads(client("lambda").get_policy(FunctionName=function)["Policy"])
        permitted = {
            statement["Condition"]["ArnLike"]["AWS:SourceArn"]
            for statement in policy["Statement"]
            if statement["Principal"] == {"Service": "lambda.alarms.cloudwatch.amazonaws.com"}
        }
        # Auto scaling makes alarms of its own.
        alarms = client("cloudwatch").describe_alarms(AlarmNamePrefix=f"{STACK}-")["MetricAlarms"]
        waking = {alarm["AlarmArn"] for alarm in alarms if function in alarm["AlarmActions"]}
        if permitted != waking or not waking:
            yield f"the alarms {sorted(waking)} wake the shard-scaler, and {sorted(permitted)} may"
        rearmed = {
            scope
            for statement in self.statements("ShardScalerFunctionRole")
            if statement["Action"] == "cloudwatch:SetAlarmState"
            for scope in statement["Resource"]
        }
        if rearmed != waking:
            yield f"the shard-scaler re-arms {sorted(rearmed)}"
        topics = {self.physical["NotificationTopic"]} if "NotificationTopic" in self.physical else set()
        topics |= {self.values["NotificationTopicArn"]} - {""}
        for alarm in alarms:
            if alarm["AlarmArn"] not in waking and set(alarm["AlarmActions"]) != topics:
                yield f"alarm {alarm['AlarmName']} tells {alarm['AlarmActions']}, not {sorted(topics)}"

        queue = client("sqs").get_queue_attributes(QueueUrl=self.physical["LostEventsQueue"], AttributeNames=["QueueArn"])
        queue = queue["Attributes"]["QueueArn"]
        [config] = Through.made["AWS::Lambda::EventInvokeConfig"]
        if config.properties["DestinationConfig"] != {"OnFailure": {"Destination": queue}}:
            yield f"lost events go to {config.properties['DestinationConfig']}"
        sending = [each["Resource"] for each in self.statements("ShardScalerFunctionRole") if each["Action"] == "sqs:SendMessage"]
        if sending != [queue]:
            yield f"the shard-scaler may send to {sending}, not to {queue}"
        peak = {
            "action": "set",
            "partition_key": self.values["PeakPartitionKey"],
            "number_of_shards": int(self.values["PeakShards"]),
            "write_units": int(self.values["PeakWriteUnits"]),
        }
        if peak.keys() != json.loads(SCHEDULED.read_text(encoding="utf-8")).keys():
            yield f"{SCHEDULED.name} is no sample of {peak}"
        wanted = {"set": peak} if self.values["PeakSchedule"] else {}
        wanted |= {"drain": {"action": "drain"}} if self.values["DrainSchedule"] else {}
        wanted |= {"rearm": {"action": "rearm", "alarms": sorted(alarm["AlarmName"] for alarm in alarms if alarm["AlarmArn"] in waking)}}
        sent = {}
        for made in Through.made.get("AWS::Scheduler::Schedule", []):
            event = json.loads(made.properties["Target"]["Input"])
            if "alarms" in event:
                event["alarms"].sort()
            sent[event["action"]] = event
            if made.properties["Target"]["Arn"] != function:
                yield f"{event} goes to {made.properties['Target']['Arn']}"
        if sent != wanted:
            yield f"the schedules send {sent}, not {wanted}"

        [gateway] = Through.made["AWS::ApiGatewayV2::Api"]
        functions = {
            client("lambda").get_function(FunctionName=self.physical[name])["Configuration"]["FunctionArn"]
            for name in ("WriterFunction", "ReaderFunction")
        }
        for path, methods in gateway.properties["Body"]["paths"].items():
            for method, operation in methods.items():
                uri = operation["x-amazon-apigateway-integration"]["uri"]
                if not any(uri.endswith(f":lambda:path/2015-03-31/functions/{arn}/invocations") for arn in functions):
                    yield f"{method} {path} goes to {uri}"


    def existing_table_faults(self):
        function = client("lambda").get_function(FunctionName=self.physical["ShardScalerFunction"])["Configuration"]["FunctionArn"]
        wanted = {"ServiceToken": function, "ServiceTimeout": 60, "TableName": self.table}
        wanted |= {name: self.values[name] for name in ("PartitionKeyName", "SortKeyName", "SortKeyType")}
        found = [made.properties for made in Through.made.get(EXISTING_TABLE_CHECK, [])]
        if found != ([wanted] if self.values["ExistingTable"] else []):
            yield f"the checks of an existing table are {found}"
        if not found:
            return
        # The function's rights are there before it is called: its role holds them itself, and is made first.
        needed, open_ends = set(), ["ExistingTableCheck"]
        while open_ends:
            name = open_ends.pop()
            if name in self.wanted and name not in needed:
                needed.add(name)
                open_ends += references(self.wanted[name])
        if "ShardScalerFunctionRole" not in needed:
            yield f"the check of the existing table waits only for {sorted(needed)}"
        apart = [name for name, body in self.wanted.items() if body["Type"] in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")]
        if apart:
            yield f"the check of the existing table does not wait for the policies {apart}"


def check(path, values):
    with mock_aws(config={"iam": {"load_aws_managed_policies": True}}):
        Through.made.clear()
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as contents:
            contents.writestr("bootstrap", "")
        client("s3").create_bucket(Bucket=CODE["Bucket"])
        client("s3").put_object(**CODE, Body=archive.getvalue())
        try:
            stack = Stack(path, values)
            return stack, list(stack.faults())
        except (BotoCoreError, ClientError, KeyError, ValueError) as error:
            return None, [f"it cannot be created: {type(error).__name__}: {error}"]


def main():
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "template.yaml"
    failed = 0
    for told, values in COMBINATIONS.items():
        stack, faults = check(path, values)
        for fault in faults:
            print(f"FAIL  {told}: {fault}", file=sys.stderr)
        if not faults:
            print(f"ok    {told}: {len(stack.physical)} resources, {len(stack.outputs)} outputs")
        failed += bool(faults)
    print(f"{len(COMBINATIONS) - failed} stacks created, {failed} not as they should be")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
