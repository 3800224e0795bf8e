"""Updates a stack under traffic: no acknowledged write is lost, whether or not the update is rolled
back."""

import itertools
import threading

import stacks
from emulated import Stack, StackFailed
from environment import ACCOUNT, REGION
from expect import await_that
from ministack.core.responses import request_scope
from ministack.services import cloudwatch

KEYS = 3


class Traffic:
    """Callers that write and read without pause, and record the acknowledged writes."""

    def __init__(self, api, callers=3):
        self.api, self.acknowledged, self.refused, self.missed = api, {}, [], []
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(callers)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, caller):
        for number in itertools.count():
            if self._stop.is_set():
                return
            key, sort = f"traffic-{number % KEYS}", f"{caller}-{number:06}"
            response = self.api.put(key, sort, {"n": number})
            with self._lock:
                if response.status == 200:
                    self.acknowledged[key, sort] = number
                else:
                    self.refused.append(repr(response))
            if response.status == 200:
                read = self.api.get(key, sort, consistent="true")
                if read.status != 200 or read.json["attributes"] != {"n": number}:
                    self.missed.append(f"{key} {sort}: {read!r}")

    def lost(self):
        """Returns the acknowledged writes that a read misses."""
        found = {}
        for key in {key for key, _ in self.acknowledged}:
            cursor = {}
            while cursor is not None:
                page = self.api.query(key, limit="1000", consistent="true", **cursor).json
                for item in page["items"]:
                    found[key, item["sort_key"]] = item["attributes"]["n"]
                cursor = {"cursor": page["cursor"]} if page["cursor"] else None
        return {place: number for place, number in self.acknowledged.items() if found.get(place) != number}


def versions(world, stack):
    """Returns the version of each function's alias."""
    aliases = ("Writer", "Reader", "ShardScaler")
    client = world.account.client("lambda")
    return [client.get_alias(FunctionName=stack.outputs[f"{name}FunctionName"], Name="live")["FunctionVersion"] for name in aliases]


def log_levels(world, stack):
    """Returns the configured log levels of the aliases' versions."""
    aliases = ("Writer", "Reader", "ShardScaler")
    client = world.account.client("lambda")
    configured = [client.get_function_configuration(FunctionName=stack.outputs[f"{name}FunctionName"], Qualifier="live") for name in aliases]
    return [each["Environment"]["Variables"]["RUST_LOG"] for each in configured]


def check(report, world):
    profile = {"Profile": "production"}
    stack = Stack(world.account, "updated").create(world.package, profile)
    api = world.caller(stack)
    first = versions(world, stack)
    with Traffic(api) as traffic:
        await_that(lambda: len(traffic.acknowledged) > 50, "traffic")
        for key in range(KEYS):
            world.account.invoke(stack.outputs["ShardScalerAliasArn"], {"action": "set", "partition_key": f"traffic-{key}", "number_of_shards": 4})
        stacks.DEPLOYMENTS.clear()
        stack.update(world.package, profile | {"LogLevel": "debug"})
        second = versions(world, stack)
        report.check("a new configuration is a new version of each function", all(a != b for a, b in zip(first, second)), (first, second))
        report.equal("each alias moved by a canary deployment", [ended for *_, ended in stacks.DEPLOYMENTS], ["Succeeded"] * 3)
        written = len(traffic.acknowledged)
        await_that(lambda: len(traffic.acknowledged) > written + 50, "traffic")

        failing = threading.Thread(target=_fail_the_canary, args=(stack, _version_alarms(stack)))
        failing.start()
        try:
            stack.update(world.package, profile | {"LogLevel": "trace"})
            report.check("a version whose alarm fires is rolled back", False, "the update succeeds")
        except StackFailed as failed:
            message = str(failed)
            report.check("a version whose alarm fires is rolled back", "version-errors" in message and "UPDATE_ROLLBACK_COMPLETE" in message, message)
        failing.join()
        # Compares the configuration and not the number, because ministack publishes another version
        # to roll back a nested stack.
        report.equal("the aliases run the earlier configuration", log_levels(world, stack), ["debug"] * 3)
        third = versions(world, stack)
        stacks.DEPLOYMENTS.clear()
        stack.update(world.package, profile | {"LogLevel": "debug", "LogRetentionDays": "400"})
        report.equal("an update that does not change the functions moves no alias", (stacks.DEPLOYMENTS, versions(world, stack)), ([], third))
        stack.update(world.package, profile | {"LogLevel": "info", "LogRetentionDays": "400"})
        written = len(traffic.acknowledged)
        await_that(lambda: len(traffic.acknowledged) > written + 50, "traffic")
    report.note(f"{len(traffic.acknowledged)} writes were acknowledged during five updates")
    report.check("none was refused", not traffic.refused, traffic.refused[:3])
    report.check("each was read at once", not traffic.missed, traffic.missed[:3])
    lost = traffic.lost()
    report.check("none is lost", not lost, list(lost)[:3])


def _version_alarms(stack):
    with request_scope(ACCOUNT, REGION):
        return {name for name in cloudwatch._alarms if name.startswith(f"{stack.name}-writer-version-errors-")}


def _fail_the_canary(stack, before):
    """Sets the alarm of the writer's new version to ALARM as soon as it exists."""
    [new] = await_that(lambda: _version_alarms(stack) - before, "the alarm of the new version")
    with request_scope(ACCOUNT, REGION):
        cloudwatch._alarms[new]["StateValue"] = "ALARM"
