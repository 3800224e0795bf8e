"""The scenarios that show that a right is needed, and the scenario of each right."""

import json
import random
import re
import time

import functions
import tables
from emulated import ADDITION, Stack, await_that
from environment import ACCOUNT, REGION
from ministack.core import lambda_runtime
from ministack.core.responses import request_scope
from ministack.services import cloudwatch, cloudwatch_logs, dynamodb, sqs
from ministack.services.cloudformation import custom_resource
from variants import make_table

# Timeout in seconds for effects that come at once or never.
SOON = 8
# Seconds of throttled writes after which a writer has decided, even on a busy machine.
PRESSURE = 40
KEY = "hot"
# Enough items that some are on another shard of four than the first.
SORTS = "abcdefgh"
ITEMS = 12
# The alarms that wake the shard-scaler.
WAKING_ALARMS = ("hot-partition", "hot-reads", "write-limit", "read-limit", "hot-replica-1")


class Fails(Exception):
    """The product does not work as it must. The message describes the fault."""


def need(holds, what):
    if not holds:
        raise Fails(what)


def check_status(status, response, what="it"):
    need(response.status == status, f"{what} returns {response.status} {response.text[:200]}")


def soon(holds, what, patience=SOON):
    try:
        return await_that(holds, what, patience)
    except TimeoutError as error:
        raise Fails(what) from error


class Stage:
    """A stack for the check of rights, with the operations of the scenarios."""

    SETTINGS = {
        "everything": {
            "ReadReplicas": "1",
            "MaxWarmWriteUnits": "400000",
            "MaxWarmReadUnits": "400000",
            "XRayTracing": "Active",
            "CanaryDeployment": "true",
            "DrainSchedule": "rate(1 minute)",
            "PeakSchedule": "rate(1 day)",
            "PeakPartitionKey": "peak",
        },
        # A budget would grant UpdateTable on the main table a second time.
        "provisioned": {
            "CapacityMode": "provisioned",
            "MaxReadUnits": "50",
            "MaxWriteUnits": "100",
            "MaxWarmWriteUnits": "0",
        },
        "existing": {"ExistingTable": "rights-existing"},
        "drained": {},
    }

    def __init__(self, world, name, part="all"):
        self.name, self.shown = name, {}
        settings = dict(self.SETTINGS[name])
        if name == "everything":
            self.key = world.account.client("kms").create_key()["KeyMetadata"]["Arn"]
            settings["EncryptionKey"] = self.key
        if "ExistingTable" in settings:
            make_table(world, settings["ExistingTable"])
        self.stack = Stack(world.account, f"rights-{name}-{part}").create(world.package, settings)
        self.outputs = self.stack.outputs
        self.main, self.metadata = self.outputs["MainTableName"], self.outputs["MetadataTableName"]
        resources = self.stack.resources()
        self.roles = {
            name.split(".")[-1]: role
            for name, role in self.stack.resources("AWS::IAM::Role").items()
        }
        self.functions = [
            self.outputs[f"{name}FunctionName"] for name in ("Writer", "Reader", "ShardScaler")
        ]
        self.custom = next(
            identity
            for name, identity in resources.items()
            if name.endswith("CustomResourceFunction")
        )
        self.api = world.caller(self.stack)
        self.account = world.account

    def kind(self, resource):
        """Returns the kind of a right's resource, without the names of this stack."""
        main, metadata = (
            f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}"
            for name in (self.main, self.metadata)
        )
        exact = {
            main: "main table",
            f"{main}/index/*": "its indexes",
            metadata: "metadata table",
            "*": "*",
        }
        if resource in exact:
            return exact[resource]
        parts = {
            ":log-group:": "its log",
            ":sqs:": "queue of lost events",
            ":kms:": "the tables' key",
            ":insight-rule/": "insight rules",
        }
        for part, kind in parts.items():
            if part in resource:
                return kind
        if ":alarm:" in resource:
            return f"alarm {resource.rsplit(':', 1)[-1].removeprefix(f'{self.stack.name}-')}"
        if resource == self.outputs["ShardScalerAliasArn"]:
            return "the shard-scaler"
        for name in ("Writer", "Reader", "ShardScaler"):
            if resource.startswith(arn := self.outputs[f"{name}FunctionArn"]):
                return f"function {name}{resource.removeprefix(arn)}"
        return resource

    # --- The content of the tables.

    def scope(self):
        return request_scope(ACCOUNT, REGION)

    def reset(self):
        """Starts with new tables and new processes, without throttles."""
        tables.THROTTLE.none(self.main)
        functions.REPORTS.none(self.main)
        self.stop()
        with self.scope():
            for name in (self.main, self.metadata):
                table = dynamodb._tables[name]
                table["items"].clear()
                dynamodb._items_replaced(table)
                table.pop("WarmThroughput", None)
                for index in table.get("GlobalSecondaryIndexes") or []:
                    index.pop("WarmThroughput", None)
            for name, alarm in cloudwatch._alarms.items():
                if name.startswith(f"{self.stack.name}-"):
                    alarm["StateValue"] = "OK"

    def stop(self):
        """Stops the processes, so the next request starts a new one."""
        for name in self.functions:
            lambda_runtime.invalidate_worker(name)

    def ready(self):
        """Makes the tables ready by a first write."""
        check_status(200, self.api.put("ready", "a"), "the first write")
        self.stop()

    def scale(self, event, kind="RequestResponse"):
        """Returns the shard-scaler's response."""
        response, failed = self.account.invoke(self.outputs["ShardScalerAliasArn"], event, kind)
        need(not failed, f"the shard-scaler fails: {response}")
        return response

    def widen(self, key, width=4):
        """Gives a key several shards."""
        response = self.scale({"action": "set", "partition_key": key, "number_of_shards": width})
        need(response["outcome"] == "scaled", f"set: {response}")

    def grown(self, key, width=4):
        """Makes a key of several shards, with an item."""
        self.widen(key, width)
        for sort in SORTS:
            check_status(200, self.api.put(key, sort), "a write")

    def width(self, key):
        response = self.api.request("GET", "/shards", {"partition_key": key})
        return (response.json or {}).get("number_of_shards", 0) if response.status == 200 else 0

    def update_custom(self, logical, kind, properties):
        """Updates a custom resource, as CloudFormation does."""
        arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{self.custom}"
        properties = {"ServiceToken": arn} | properties
        stack = (self.stack.name, self.stack.identity)
        with self.scope():
            try:
                custom_resource.invoke_custom_resource(
                    "Update", logical, properties, *stack, kind, "created"
                )
            except (RuntimeError, TimeoutError) as error:
                raise Fails(str(error)) from error

    def alarm(self, name):
        return cloudwatch._alarms.get_scoped(ACCOUNT, REGION, f"{self.stack.name}-{name}")

    def lines(self, function):
        """Returns the number of streams in the log of a function."""
        with self.scope():
            group = (
                f"/aws/lambda/{self.stack.name}-{function}"
                if function != "custom"
                else self.stack.resource("CustomResourceLogGroup")
            )
            return len(cloudwatch_logs._log_groups[group]["streams"])

    def messages(self):
        with self.scope():
            return sum(
                len(queue["messages"])
                for url, queue in sqs._queues.items()
                if self.stack.name in url
            )

    def log(self, function):
        """Returns all lines of a function's log."""
        with self.scope():
            streams = cloudwatch_logs._log_groups[f"/aws/lambda/{self.stack.name}-{function}"][
                "streams"
            ]
            return [event["message"] for stream in streams.values() for event in stream["events"]]

    # --- A drain, which waits for two minutes between copying and deleting.

    def long_ago(self):
        """Moves all changes of shards into the past, because a drain waits until no earlier request
        can arrive."""
        with self.scope():
            for of_it in dynamodb._tables[self.metadata]["items"].values():
                for item in of_it.values():
                    for name, value in item.items():
                        if name == "last_updated" or name.startswith("key:"):
                            [(kind, text)] = value.items()
                            value[kind] = re.sub(
                                r"\b\d{10}\b", lambda second: str(int(second[0]) - 2_000), text
                            )
        self.stop()

    def stored(self, key):
        """Returns the shards on which a key has items."""
        with self.scope():
            return sorted(
                stored
                for stored, of_it in dynamodb._tables[self.main]["items"].items()
                if stored.startswith(f"{key}.") and of_it
            )

    def copies(self):
        with self.scope():
            return sum(
                len(of_it)
                for stored, of_it in dynamodb._tables[self.main]["items"].items()
                if stored.startswith("k.")
            )

    def begin_drain(self):
        misplaced(self)
        moved(self)
        need(self.copies() > ITEMS, f"nothing is copied: {self.copies()}")

    def await_readers(self):
        """Waits until the drain reports that it waits for nothing."""
        [key] = self.scale({"action": "drain"})["keys"]
        need(key["outcome"] == "waiting", str(key))
        until = key["until"]
        soon(lambda: time.time() > until + 1, "two minutes pass", 200)

    def remove_old_copies(self):
        with self.scope():
            old = dynamodb._tables[self.main]["items"].get("k.1", {})
            others = [
                of_it
                for stored, of_it in dynamodb._tables[self.main]["items"].items()
                if stored.startswith("k.") and stored != "k.1"
            ]
            for sort in {sort for of_it in others for sort in of_it} & set(old):
                del old[sort]

    def end_drain(self, vanishing):
        response = self.scale({"action": "drain"})
        need("failed" not in json.dumps(response), json.dumps(response))
        if not vanishing:
            need(self.copies() == ITEMS, f"old copies stay: {self.copies()}; {response}")

    def end(self):
        self.stack.delete()


class Scenario:
    """A scenario: `prepare` runs with all rights, `act` with all but one."""

    def __init__(self, act, prepare=None):
        self.act, self._prepare = act, prepare

    def prepare(self, stage):
        if self._prepare:
            self._prepare(stage)
            stage.stop()


def returns(wanted, request):
    def act(stage):
        check_status(wanted, request(stage))

    return act


def ready(stage):
    stage.ready()


def with_item(stage):
    stage.ready()
    check_status(200, put(stage), "a write")


def with_grown(stage):
    stage.ready()
    stage.grown("k")


def with_calm(stage):
    """Makes a key that grew long ago and was not drained. The deletion of its item stores no
    tombstone."""
    with_grown(stage)
    stage.long_ago()


def logs(function, request):
    def act(stage):
        before = stage.lines(function)
        request(stage)
        soon(lambda: stage.lines(function) > before, f"no line in the {function}'s log", 2)

    return act


def traces(function, request):
    def act(stage):
        name = stage.outputs[f"{function}FunctionName"]
        before = functions.TRACES.count(name)
        request(stage)
        soon(lambda: functions.TRACES.count(name) > before, f"no trace of {function}", 2)

    return act


def put(stage):
    return stage.api.put("k", "a")


def add(stage):
    return stage.api.patch("k", "a", {"add": {"n": 1}}, ADDITION)


def get(stage):
    return stage.api.get("k", "a")


def show(stage):
    return stage.scale({"action": "list"})


def each(status, request):
    """Makes the request for each of the items, on any shard."""

    def act(stage):
        for sort in SORTS:
            check_status(status, request(stage, sort))

    return act


def created(stage, sort):
    return stage.api.post("k", f"new-{sort}", headers={"If-None-Match": "*"})


def raced(stage):
    """Another caller deletes the item a moment before, so the writer reads the stored item."""
    tables.RACED.add(stage.main)
    try:
        each(204, lambda stage, sort: stage.api.delete("k", sort))(stage)
    finally:
        tables.RACED.discard(stage.main)


def replicas(stage):
    """If a replica cannot be read, the reader logs that and reads the table. So the log shows the
    difference."""
    before = len(stage.log("reader"))
    for _ in range(12):
        response = stage.api.query("k")
        need(
            response.status == 200 and len(response.json["items"]) == 1,
            f"{response.status} {response.text[:200]}",
        )
    logged = [
        line for line in stage.log("reader")[before:] if "a read replica cannot be read" in line
    ]
    need(
        not logged,
        "degraded by design: the request succeeds, and the log reports: a read replica cannot be read",
    )


def throttled(stage, is_hot, share, holds, what):
    """Writes until `holds`, while this share of the writes to hot shards is throttled."""
    chance = random.Random(1)
    tables.THROTTLE.writes(stage.main, lambda stored: is_hot(stored) and chance.random() < share)
    items = [
        {"partition_key": KEY, "sort_key": f"{number:03}", "attributes": {}}
        for number in range(150)
    ]
    # An instance that is not sure by itself decides with the next request, a moment later.
    until = time.monotonic() + PRESSURE
    while time.monotonic() < until and not holds():
        stage.api.request("POST", "/items/batch", None, {"items": items})
    tables.THROTTLE.none(stage.main)
    need(holds(), what)


def hot_writes(stage):
    """Writes while most first attempts at the key's one shard are throttled."""
    throttled(
        stage,
        lambda stored: stored == f"{KEY}.1",
        0.7,
        lambda: stage.width(KEY) > 1,
        "a throttled key stays at one shard",
    )


def short_of_partitions(stage):
    """Writes while every shard is throttled. More shards do not help, but more partitions would."""

    def is_warmed():
        return "WarmThroughput" in dynamodb._tables.get_scoped(ACCOUNT, REGION, stage.main)

    def is_hot(stored):
        return stored.startswith(f"{KEY}.")

    throttled(stage, is_hot, 0.98, is_warmed, "the writer does not wake the shard-scaler")


def published(stage):
    stage.ready()
    stage.scale({"action": "drain"})


def scaled(stage):
    stage.widen("k")


def outcome(event, wanted):
    def act(stage):
        response = stage.scale(event)
        need(response.get("outcome") == wanted and not response.get("failed"), str(response))

    return act


def moved(stage):
    """Checks that a drain copies items home."""
    response = stage.scale({"action": "settle", "partition_key": "k"})
    need(response["outcome"] == "begun", str(response))
    response = stage.scale({"action": "drain"})
    need(len(stage.stored("k")) > 1, f"no item is copied: {response}")


def misplaced(stage):
    stage.ready()
    for number in range(ITEMS):
        stage.api.put("k", f"{number:02}")
    scaled(stage)
    stage.long_ago()


def woken(metric, alarm, check):
    """Wakes the shard-scaler by an alarm."""

    def act(stage):
        with stage.scope():
            state = {
                "AlarmName": f"{stage.stack.name}-{alarm}",
                "StateValue": "ALARM",
                "StateReason": metric,
            }
            cloudwatch._set_alarm_state(None, state, False, True)
        check(stage)

    return act


def reported(stage, place=None):
    stage.ready()
    functions.REPORTS.set(place or stage.main, {f"{KEY}.1": 50_000})


def grows(stage):
    soon(lambda: stage.width(KEY) > 1, "the throttled key stays at one shard")


def rearmed(stage):
    alarms = [stage.alarm(name) for name in WAKING_ALARMS]
    for alarm in alarms:
        alarm["StateValue"] = "ALARM"
    names = [alarm["AlarmName"] for alarm in alarms]
    response = stage.scale({"action": "rearm", "alarms": names})
    left = [name for name in WAKING_ALARMS if stage.alarm(name)["StateValue"] != "OK"]
    need(not left, f"{', '.join(left)} stays in ALARM: {response}")


def index_alarm(stage):
    """Sends an alarm on an index. The index has its own rule for throttled keys."""
    index = {"TableName": stage.main, "GlobalSecondaryIndexName": "read-replica-1"}
    response = stage.scale(functions.alarm_of({"WriteKeyRangeThroughputThrottleEvents": index}))
    need("failed" not in json.dumps(response), json.dumps(response))


def composite(stage):
    """Sends an alarm without a metric, so the shard-scaler reads the metrics."""
    with stage.scope():
        cloudwatch.record_metric(
            "AWS/DynamoDB",
            "WriteKeyRangeThroughputThrottleEvents",
            500,
            "Count",
            {"TableName": stage.main},
        )
    response = stage.scale(functions.alarm_of({}))
    need(stage.width(KEY) > 1, json.dumps(response))


def raised(stage):
    response = stage.scale(
        functions.alarm_of({"WriteProvisionedThroughputThrottleEvents": {"TableName": stage.main}})
    )
    need((response.get("capacity") or {}).get("outcome") == "raised", json.dumps(response))


def lost(stage):
    """Removes the table's own item, so no process starts and every attempt fails."""
    before = stage.messages()
    with stage.scope():
        del dynamodb._tables[stage.metadata]["items"]["_sharding:table"]
    stage.scale({"action": "drain"}, "Event")
    soon(lambda: stage.messages() > before, "the event is lost")


def protected(stage):
    with stage.scope():
        for name in (stage.main, stage.metadata):
            dynamodb._tables[name]["DeletionProtectionEnabled"] = False
    properties = {"Protected": "true", "Tables": [stage.main, stage.metadata], "ServiceTimeout": 60}
    stage.update_custom("TableProtection", "Custom::DeletionProtection", properties)
    with stage.scope():
        open_ones = [
            name
            for name in (stage.main, stage.metadata)
            if not dynamodb._tables[name]["DeletionProtectionEnabled"]
        ]
        need(not open_ones, f"not protected: {open_ones}")


def started(stage):
    """Checks that a deployment over an existing table starts the shard-scaler, and fails if it does
    not start."""
    properties = {"Function": stage.outputs["ShardScalerFunctionArn"], "ServiceTimeout": 150}
    stage.update_custom("ExistingTableCheck", "Custom::Start", properties)


def custom_logs(stage):
    before = stage.lines("custom")
    protected(stage)
    soon(lambda: stage.lines("custom") > before, "no line in the log of the custom resources", 2)


def fired(stage):
    """Returns the outcome of the event of the drain schedule."""
    name = stage.stack.resource("DrainScheduleEntry")
    with stage.scope():
        return functions.fire(name)


def scheduled(stage):
    became = fired(stage)
    need(became == "invoked", f"the event is {became}")


def kept(stage):
    functions.UNDELIVERED.add(stage.stack.name)
    try:
        before = stage.messages()
        became = fired(stage)
        need(
            became == "kept" and stage.messages() > before,
            f"an event that cannot be delivered is {became}",
        )
    finally:
        functions.UNDELIVERED.discard(stage.stack.name)


SCENARIOS = {
    "PUT /item": Scenario(returns(200, put), ready),
    "the first PUT /item of new tables": Scenario(returns(200, put)),
    "PATCH /item, which adds": Scenario(returns(200, add), with_item),
    "DELETE /item": Scenario(returns(204, lambda stage: stage.api.delete("k", "a")), with_item),
    "POST /items, create only, of a grown key": Scenario(each(201, created), with_grown),
    "DELETE /item, which another caller deletes": Scenario(raced, with_calm),
    "POST /items/batch, throttled": Scenario(hot_writes, ready),
    "POST /items/batch, throttled on every shard": Scenario(short_of_partitions, published),
    "the log of PUT /item": Scenario(logs("writer", put), ready),
    "the trace of PUT /item": Scenario(traces("Writer", put), ready),
    "GET /item": Scenario(returns(200, get), with_item),
    "GET /items": Scenario(
        returns(200, lambda stage: stage.api.query("k", consistent="true")), with_item
    ),
    "GET /items, twelve times": Scenario(replicas, with_item),
    "GET /item of a grown key": Scenario(
        each(200, lambda stage, sort: stage.api.get("k", sort)), with_grown
    ),
    "the log of GET /item": Scenario(logs("reader", get), with_item),
    "the trace of GET /item": Scenario(traces("Reader", get), with_item),
    "set": Scenario(scaled, ready),
    "the first event of new tables": Scenario(scaled),
    "drain": Scenario(outcome({"action": "drain"}, "handled"), with_grown),
    "rebuild": Scenario(outcome({"action": "rebuild"}, "handled"), with_grown),
    "settle and drain": Scenario(moved, misplaced),
    "warm": Scenario(
        outcome({"action": "warm", "write_units": 20_000, "read_units": 20_000}, "warming"), ready
    ),
    "the alarm hot-partition": Scenario(woken("hot", "hot-partition", grows), reported),
    "rearm": Scenario(rearmed, ready),
    "an alarm on a replica": Scenario(
        index_alarm, lambda stage: reported(stage, f"{stage.main}-read-replica-1")
    ),
    "an alarm without a metric": Scenario(composite, reported),
    "an alarm on provisioned capacity": Scenario(raised, ready),
    "an event that fails": Scenario(lost, with_grown),
    "the log of list": Scenario(logs("shard-scaler", show), ready),
    "the trace of list": Scenario(traces("ShardScaler", show), ready),
    "the protection of the tables": Scenario(protected),
    "the log of the custom resources": Scenario(custom_logs),
    "the check of an existing table": Scenario(started, ready),
    "the schedule drain": Scenario(scheduled, ready),
    "a schedule's event that cannot be delivered": Scenario(kept, ready),
}

_MAIN, _METADATA, _INDEXES = "main table", "metadata table", "its indexes"
_LOG, _KEY, _QUEUE = "its log", "the tables' key", "queue of lost events"

SHOWN_BY = {
    ("WriterRole", "logs:CreateLogStream", _LOG): "the log of PUT /item",
    ("WriterRole", "logs:PutLogEvents", _LOG): "the log of PUT /item",
    ("WriterRole", "dynamodb:PutItem", _MAIN): "PUT /item",
    ("WriterRole", "dynamodb:UpdateItem", _MAIN): "PATCH /item, which adds",
    ("WriterRole", "dynamodb:DeleteItem", _MAIN): "DELETE /item",
    ("WriterRole", "dynamodb:GetItem", _MAIN): "DELETE /item, which another caller deletes",
    ("WriterRole", "dynamodb:BatchGetItem", _MAIN): "POST /items, create only, of a grown key",
    ("WriterRole", "dynamodb:Query", _MAIN): "POST /items/batch, throttled",
    ("WriterRole", "dynamodb:GetItem", _METADATA): "PUT /item",
    ("WriterRole", "dynamodb:UpdateItem", _METADATA): "the first PUT /item of new tables",
    ("WriterRole", "dynamodb:Scan", _MAIN): "the first PUT /item of new tables",
    ("WriterRole", "dynamodb:Scan", _METADATA): "the first PUT /item of new tables",
    (
        "WriterRole",
        "lambda:InvokeFunction",
        "the shard-scaler",
    ): "POST /items/batch, throttled on every shard",
    ("WriterRole", "kms:Decrypt", _KEY): "PUT /item",
    ("WriterRole", "xray:PutTraceSegments", "*"): "the trace of PUT /item",
    ("WriterRole", "xray:PutTelemetryRecords", "*"): "the trace of PUT /item",
    ("ReaderRole", "logs:CreateLogStream", _LOG): "the log of GET /item",
    ("ReaderRole", "logs:PutLogEvents", _LOG): "the log of GET /item",
    ("ReaderRole", "dynamodb:Query", _MAIN): "GET /items",
    ("ReaderRole", "dynamodb:GetItem", _MAIN): "GET /item",
    ("ReaderRole", "dynamodb:BatchGetItem", _MAIN): "GET /item of a grown key",
    ("ReaderRole", "dynamodb:Query", _INDEXES): "GET /items, twelve times",
    ("ReaderRole", "dynamodb:GetItem", _METADATA): "GET /item",
    ("ReaderRole", "kms:Decrypt", _KEY): "GET /item",
    ("ReaderRole", "xray:PutTraceSegments", "*"): "the trace of GET /item",
    ("ReaderRole", "xray:PutTelemetryRecords", "*"): "the trace of GET /item",
    ("ShardScalerRole", "logs:CreateLogStream", _LOG): "the log of list",
    ("ShardScalerRole", "logs:PutLogEvents", _LOG): "the log of list",
    ("ShardScalerRole", "sqs:SendMessage", _QUEUE): "an event that fails",
    ("ShardScalerRole", "dynamodb:DescribeContributorInsights", _MAIN): "the alarm hot-partition",
    ("ShardScalerRole", "dynamodb:DescribeTable", _MAIN): "warm",
    ("ShardScalerRole", "dynamodb:DescribeContributorInsights", _INDEXES): "an alarm on a replica",
    ("ShardScalerRole", "dynamodb:UpdateTable", _MAIN): "warm",
    ("ShardScalerRole", "dynamodb:Query", _MAIN): "set",
    ("ShardScalerRole", "dynamodb:Scan", _MAIN): "rebuild",
    ("ShardScalerRole", "dynamodb:PutItem", _MAIN): "settle and drain",
    (
        "ShardScalerRole",
        "cloudwatch:GetInsightRuleReport",
        "insight rules",
    ): "the alarm hot-partition",
    ("ShardScalerRole", "cloudwatch:GetMetricData", "*"): "an alarm without a metric",
    ("ShardScalerRole", "cloudwatch:DescribeAlarms", "*"): "rearm",
    ("ShardScalerRole", "cloudwatch:SetAlarmState", "alarm hot-partition"): "rearm",
    ("ShardScalerRole", "cloudwatch:SetAlarmState", "alarm hot-reads"): "rearm",
    ("ShardScalerRole", "cloudwatch:SetAlarmState", "alarm write-limit"): "rearm",
    ("ShardScalerRole", "cloudwatch:SetAlarmState", "alarm read-limit"): "rearm",
    ("ShardScalerRole", "cloudwatch:SetAlarmState", "alarm hot-replica-*"): "rearm",
    ("ShardScalerRole", "dynamodb:GetItem", _METADATA): "set",
    ("ShardScalerRole", "dynamodb:UpdateItem", _METADATA): "set",
    ("ShardScalerRole", "dynamodb:Scan", _METADATA): "drain",
    ("ShardScalerRole", "kms:Decrypt", _KEY): "set",
    ("ShardScalerRole", "xray:PutTraceSegments", "*"): "the trace of list",
    ("ShardScalerRole", "xray:PutTelemetryRecords", "*"): "the trace of list",
    ("CustomResourceRole", "logs:CreateLogStream", _LOG): "the log of the custom resources",
    ("CustomResourceRole", "logs:PutLogEvents", _LOG): "the log of the custom resources",
    ("CustomResourceRole", "dynamodb:DescribeTable", _MAIN): "the protection of the tables",
    ("CustomResourceRole", "dynamodb:DescribeTable", _METADATA): "the protection of the tables",
    ("CustomResourceRole", "dynamodb:UpdateTable", _MAIN): "the protection of the tables",
    ("CustomResourceRole", "dynamodb:UpdateTable", _METADATA): "the protection of the tables",
    ("ScheduleRole", "lambda:InvokeFunction", "the shard-scaler"): "the schedule drain",
    ("ScheduleRole", "sqs:SendMessage", _QUEUE): "a schedule's event that cannot be delivered",
}

# Rights that only stacks of other kinds grant, or that they grant by another statement.
ONLY = {
    "provisioned": {
        ("ShardScalerRole", "dynamodb:UpdateTable", _MAIN): "an alarm on provisioned capacity"
    },
    "existing": {
        (
            "CustomResourceRole",
            "lambda:InvokeFunction",
            "function ShardScaler",
        ): "the check of an existing table"
    },
}
# The actions of a drain two minutes after its beginning.
SHOWN_AFTER_A_DRAIN = {
    ("ShardScalerRole", "dynamodb:DeleteItem", _MAIN): "a drain deletes what it has copied",
    ("ShardScalerRole", "dynamodb:GetItem", _MAIN): "a drain meets a copy that is gone",
}
