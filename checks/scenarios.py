"""Six scenarios, which together use each right of each role: the product works in all of them, the
emulator denies nothing, and each action on each resource of a role's policy was evaluated.

A scenario that waits for minutes returns the time until then, and its rest, so that the others run
meanwhile.
"""

import json
import random
import re
import time
from fnmatch import fnmatchcase
from itertools import product

import evaluations
import functions
import tables
from environment import ACCOUNT, REGION
from expect import await_that
from ministack.core import lambda_runtime
from ministack.core.responses import request_scope
from ministack.services import cloudwatch, dynamodb, sqs

# Timeout in seconds for effects that come at once or never.
SOON = 8
# Seconds of throttled writes after which a writer has decided, even on a busy machine.
PRESSURE = 40
# Enough items that some are on another shard of four than the first.
SORTS = "abcdefghijkl"
ADDITION = "application/vnd.dynamodb-write-sharding.add+json"
# Rights that the emulator cannot exercise.
NOT_EMULATED = (
    "DeploymentRole, ",  # The emulator's CodeDeploy calls neither Lambda nor CloudWatch.
    # It evaluates the right on the table only.
    "ShardScalerRole, RaiseWarmThroughput: dynamodb:UpdateTable on resource 1",
)
WAKING = ("hot-partition", "hot-reads", "write-limit", "read-limit", "hot-replica-1")


class Stage:
    """A stack, with the operations of the scenarios."""

    def __init__(self, world, name, wanted):
        self.account, self.stack = world.account, world.stack(f"rights-{name}", wanted)
        self.outputs, self.resources = self.stack.outputs, self.stack.resources()
        self.main, self.metadata = self.outputs["MainTableName"], self.outputs["MetadataTableName"]
        self.api = world.caller(self.stack)

    def request(self, status, method, path, query=None, body=None, headers=None):
        response = self.api.request(method, path, query, body, headers)
        assert response.status == status, f"{method} {path} returns {response}, not {status}"
        return response.json

    def item(self, status, method, key, sort, body=None, headers=None):
        return self.request(status, method, "/item", {"partition_key": key, "sort_key": sort}, body, headers)

    def put(self, key, sorts=SORTS):
        for sort in sorts:
            self.item(200, "PUT", key, sort, {"attributes": {"n": 1}})

    def scale(self, event, kind="RequestResponse"):
        """Returns the shard-scaler's response."""
        response, failed = self.account.invoke(self.outputs["ShardScalerAliasArn"], event, kind)
        text = json.dumps(response).replace('"failed": []', "")
        assert not failed and "failed" not in text, f"{event}: {text}"
        return response

    def widen(self, key, width=4):
        """Gives a key several shards."""
        response = self.scale({"action": "set", "partition_key": key, "number_of_shards": width})
        assert response["outcome"] == "scaled", response

    def width(self, key):
        return self.request(200, "GET", "/shards", {"partition_key": key})["number_of_shards"]

    def grows(self, key):
        await_that(lambda: self.width(key) > 1, f"more shards of {key}", SOON)

    def stop(self):
        """Stops the processes, so the next request starts a new one."""
        for name in ("Writer", "Reader", "ShardScaler"):
            lambda_runtime.invalidate_worker(self.outputs[f"{name}FunctionName"])

    def items(self, table):
        """Returns the stored items of a table, by partition key and sort key."""
        return dynamodb._tables.get_scoped(ACCOUNT, REGION, table)["items"]

    def copies(self, key):
        """Returns the items of each shard of a key."""
        return {stored: of_it for stored, of_it in self.items(self.main).items() if stored.split("\x1f")[0] == key}

    def long_ago(self):
        """Moves all changes of shards into the past, because a drain waits until no earlier request
        can arrive."""
        for of_it in self.items(self.metadata).values():
            for name, value in ((name, value) for item in of_it.values() for name, value in item.items()):
                if name == "last_updated" or name.startswith("key:"):
                    [(kind, text)] = value.items()
                    value[kind] = re.sub(r"\b\d{10}\b", lambda second: str(int(second[0]) - 2_000), text)
        self.stop()

    def woken_by(self, metrics):
        """Sends the event of an alarm with these metrics. Returns the response."""
        return self.scale(functions.alarm_of(metrics, f"{self.stack.name}-hot-partition"))

    def alarm(self, name):
        return cloudwatch._alarms.get_scoped(ACCOUNT, REGION, f"{self.stack.name}-{name}")

    def messages(self):
        queues = [queue for url, queue in sqs._queues.items() if self.stack.name in url]
        return sum(len(queue["messages"]) for queue in queues)


def throttled(stage, key, share, holds, is_hot):
    """Writes until `holds`, while this share of the writes to hot shards is throttled."""
    chance = random.Random(1)
    tables.HOT[stage.main] = lambda stored: is_hot(stored) and chance.random() < share
    items = [{"partition_key": key, "sort_key": f"{number:03}", "attributes": {}} for number in range(150)]
    # An instance that is not sure by itself decides with the next request, a moment later.
    until = time.monotonic() + PRESSURE
    while time.monotonic() < until and not holds():
        stage.api.request("POST", "/items/batch", None, {"items": items})
    tables.HOT.clear()
    assert holds(), f"{key} is throttled for {PRESSURE} seconds"


def requests(stage):
    """Every route, for keys of one shard and of several."""
    stage.put("plain")
    stage.item(200, "PATCH", "plain", "a", {"add": {"n": 1}}, {"Content-Type": ADDITION})
    stage.item(204, "DELETE", "plain", "b")
    assert stage.item(200, "GET", "plain", "a")["attributes"] == {"n": 2}
    for consistent in ("true", *["false"] * 12):
        query = {"partition_key": "plain", "consistent": consistent}
        assert len(stage.request(200, "GET", "/items", query)["items"]) == len(SORTS) - 1
    stage.widen("grown")
    stage.put("grown")
    for sort in SORTS:
        stage.item(200, "GET", "grown", sort)
        body = {"partition_key": "grown", "sort_key": f"new-{sort}", "attributes": {}}
        stage.request(201, "POST", "/items", None, body, {"If-None-Match": "*"})
    # Another caller deletes an item a moment before, so the writer reads the stored item. The deletion
    # from a key that grew long ago stores no tombstone.
    stage.long_ago()
    tables.RACED.add(stage.main)
    for sort in SORTS:
        stage.item(204, "DELETE", "grown", sort)
    tables.RACED.discard(stage.main)


def pressure(stage):
    """A writer gives a throttled key more shards. Where that does not help, it wakes the shard-scaler,
    which warms the table. This is first, because a writer that knows the table's warm throughput finds
    the table short, and not the key."""
    stage.put("plain", "a")
    throttled(stage, "hot", 0.7, lambda: stage.width("hot") > 1, lambda stored: stored == "hot")
    stage.scale({"action": "drain"})
    table = dynamodb._tables.get_scoped(ACCOUNT, REGION, stage.main)
    throttled(stage, "short", 0.98, lambda: "WarmThroughput" in table, lambda stored: stored.startswith("short"))
    assert stage.scale({"action": "warm", "write_units": 200_000, "read_units": 200_000})["outcome"] == "warming"
    assert stage.scale({"action": "arm", "pattern": "key:plain"})["outcome"] == "handled"


def alarms(stage):
    """Alarms wake the shard-scaler, which finds the throttled keys, and re-arms the alarms."""
    functions.REPORTS |= {stage.main: {"alarmed": 50_000}, f"{stage.main}-read-replica-1": {"index": 50_000}}
    stage.put("alarmed")
    with request_scope(ACCOUNT, REGION):
        state = {"AlarmName": f"{stage.stack.name}-hot-partition", "StateValue": "ALARM", "StateReason": "hot"}
        cloudwatch._set_alarm_state(None, state, False, True)
    stage.grows("alarmed")
    # An index has its own rule. For an alarm without a metric, the shard-scaler reads the metrics.
    place = {"TableName": stage.main, "GlobalSecondaryIndexName": "read-replica-1"}
    stage.woken_by({"WriteKeyRangeThroughputThrottleEvents": place})
    stage.grows("index")
    functions.REPORTS[stage.main] = {"composite": 50_000}
    with request_scope(ACCOUNT, REGION):
        metric = ("AWS/DynamoDB", "WriteKeyRangeThroughputThrottleEvents", 500, "Count", {"TableName": stage.main})
        cloudwatch.record_metric(*metric)
    stage.woken_by({})
    stage.grows("composite")
    for name in WAKING:
        stage.alarm(name)["StateValue"] = "ALARM"
    stage.scale({"action": "rearm", "alarms": [stage.alarm(name)["AlarmName"] for name in WAKING]})
    assert {stage.alarm(name)["StateValue"] for name in WAKING} == {"OK"}


def drains(stage):
    """A drain copies the items of a key to their shards, waits for readers, and deletes the old copies.
    One of them is gone."""
    stage.put("settled")
    stage.widen("settled")
    stage.long_ago()
    response = stage.scale({"action": "settle", "partition_key": "settled"})
    assert response["outcome"] == "begun", response
    stage.scale({"action": "drain"})
    [until] = [key["until"] for key in stage.scale({"action": "drain"})["keys"] if key["outcome"] == "waiting"]
    old, others = stage.copies("settled").pop("settled"), stage.copies("settled")
    assert len(others) > 1, others

    def rest():
        shards = [of_it for name, of_it in others.items() if name != "settled"]
        del old[next(sort for sort in old if any(sort in of_it for of_it in shards))]
        response = stage.scale({"action": "drain"})
        found = sorted(sort for of_it in stage.copies("settled").values() for sort in of_it)
        assert found == list(SORTS), f"{found}; {response}"
        stage.scale({"action": "rebuild"})

    return until + 1, rest


def events(stage):
    """Schedules send events. Those that reach no function, or that it cannot handle, are kept."""
    name = stage.resources["DrainScheduleEntry"]
    assert functions.fire(name) == "invoked"
    before = stage.messages()
    functions.UNDELIVERED.add(stage.stack.name)
    assert functions.fire(name) == "kept" and stage.messages() > before
    functions.UNDELIVERED.clear()
    # Without the table's own item no process starts, so every attempt fails.
    own = stage.items(stage.metadata).pop("_sharding:table")
    before = stage.messages()
    stage.stop()
    stage.scale({"action": "drain"}, "Event")
    await_that(lambda: stage.messages() > before, "the event is lost", SOON)
    stage.items(stage.metadata)["_sharding:table"] = own


def other_stacks(world):
    """Yields stages of stacks with rights of their own: over an existing table, for which the right to
    describe it comes late, and of provisioned capacity, which an alarm raises."""
    world.account.create_table("rights-existing-table", "partition_key", "sort_key")
    evaluations.LATE["dynamodb:DescribeTable"] = 2
    stage = Stage(world, "existing", {"ExistingTable": "rights-existing-table"})
    assert not evaluations.LATE["dynamodb:DescribeTable"], "no right was late"
    stage.put("first")
    yield stage
    wanted = {"CapacityMode": "provisioned", "MaxReadUnits": "50", "MaxWriteUnits": "100", "MaxWarmWriteUnits": "0"}
    stage = Stage(world, "provisioned", wanted)
    stage.put("first")
    response = stage.woken_by({"WriteProvisionedThroughputThrottleEvents": {"TableName": stage.main}})
    assert response["capacity"]["outcome"] == "raised", response
    yield stage


def faults(stages):
    """Returns the evaluations that were denied, and the rights that no stack used."""
    denied, used = [], {}
    for stage in stages:
        iam = stage.account.client("iam")
        for logical, role in stage.stack.resources("AWS::IAM::Role").items():
            asked = [each for each in list(evaluations.RECORD) if each.role == role]
            denied += [f"denied: {logical}, {each.action} on {each.resource}" for each in asked if not each.allowed]
            for policy in iam.list_role_policies(RoleName=role)["PolicyNames"]:
                document = iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"]
                for statement in document["Statement"]:
                    for action, (number, resource) in product(
                        members(statement["Action"]), enumerate(members(statement["Resource"]))
                    ):
                        # Another stack has other names, and the same order.
                        right = f"{logical}, {statement['Sid']}: {action} on resource {number}"
                        found = any(each.action == action and fnmatchcase(each.resource, resource) for each in asked)
                        used[right] = used.get(right) or found
    apart = [right for right in used if not used[right] and any(right.startswith(each) for each in NOT_EMULATED)]
    return denied, [right for right in used if not used[right] and right not in apart], len(used), len(apart)


def members(value):
    return [value] if isinstance(value, str) else value


# A drain waits in one process of the shard-scaler, so no scenario after it stops the processes.
SCENARIOS = (pressure, requests, events, drains, alarms)


def check(report, world):
    evaluations.RECORD.clear()
    key = world.account.client("kms").create_key()["KeyMetadata"]["Arn"]
    everything = {
        "EncryptionKey": key,
        "ReadReplicas": "1",
        "MaxWarmWriteUnits": "400000",
        "MaxWarmReadUnits": "400000",
        "XRayTracing": "Active",
        "CanaryDeployment": "true",
        "DrainSchedule": "rate(1 minute)",
    }
    stage, waiting = Stage(world, "everything", everything), []
    for scenario in SCENARIOS:
        title = f"{scenario.__name__}: {scenario.__doc__.split('.')[0]}"
        if found := scenario(stage):
            waiting.append((title, *found))
        else:
            report.check(title, True)
    stages = [stage, *other_stacks(world)]
    for title, until, rest in waiting:
        await_that(lambda until=until: time.time() > until, title, 200)
        rest()
        report.check(title, True)
    denied, unused, rights, apart = faults(stages)
    report.check("no request was denied", not denied, denied)
    report.check(
        f"all of {rights} rights are used, except {apart} that the emulator cannot exercise", not unused, unused
    )
