"""Checks the alarms and schedules that wake the shard-scaler."""

import json
import re

from template_claims import SCALER, Claims, alias, claim
from template_expected import ALARM_ARN, ALARM_PRINCIPAL, READ_REPLICA_COUNTS
from template_flat import ROOT, Deployment, as_list


# One right covers the alarms of all read replicas.
OF_A_REPLICA = re.compile(r"^(hot-replica-)\d$")
# Alarms on the metadata table, and the service whose throttles they and others watch.
WATCHED = {
    "metadata-reads-throttled": ("AWS/DynamoDB", "ReadThrottleEvents", "MetadataTable"),
    "metadata-writes-throttled": ("AWS/DynamoDB", "WriteThrottleEvents", "MetadataTable"),
    "writer-throttles": ("AWS/Lambda", "Throttles", "WriterFunction"),
    "reader-throttles": ("AWS/Lambda", "Throttles", "ReaderFunction"),
    "consumed-reads": ("AWS/DynamoDB", "ConsumedReadCapacityUnits", "MainTable"),
    "consumed-writes": ("AWS/DynamoDB", "ConsumedWriteCapacityUnits", "MainTable"),
}


def metric_of(alarm):
    """Returns namespace, name and dimensions' values of the alarm's only metric."""
    stats = [each["MetricStat"]["Metric"] for each in alarm.get("Metrics", []) if "MetricStat" in each]
    metric = stats[0] if len(stats) == 1 else alarm
    dimensions = [each["Value"] for each in metric.get("Dimensions", [])]
    return metric.get("Namespace"), metric.get("MetricName"), dimensions


class Alarms(Claims):
    @claim
    def every_alarm_says_what_it_is_for(self):
        watched = {alarm["Ref"] for each in self.functions.values() for alarm in each["DeploymentPreference"]["Alarms"]}
        for name, properties in self.of_type("AWS::CloudWatch::Alarm").items():
            fields = ["AlarmName", "AlarmDescription", "TreatMissingData"] + (
                [] if name in watched else ["AlarmActions"]
            )
            lacking = [field for field in fields if not properties.get(field)]
            owned = properties["AlarmName"]["Fn::Sub"].startswith("${AWS::StackName}-")
            self.expect(
                not lacking and owned,
                f"alarm {name} is named, described and acts",
                f"alarm {name} lacks {lacking}, or is not named by the stack",
            )

    @staticmethod
    def waking_alarms(deployment):
        alarms = deployment.of_type("AWS::CloudWatch::Alarm")
        return {name: properties for name, properties in alarms.items() if SCALER in properties.get("AlarmActions", [])}

    @claim
    def the_alarms_that_the_scaler_rearms_are_those_that_wake_it(self):
        for deployed, deployment in self.deployments.items():
            rights = self.rights_of(deployment, "ShardScalerRole")
            rearmed = {scope for scope, actions in rights.items() if "cloudwatch:SetAlarmState" in actions}
            woken = {
                "alarm "
                + OF_A_REPLICA.sub(
                    r"\1*", properties["AlarmName"]["Fn::Sub"].removeprefix("${AWS::StackName}-")
                )
                for properties in self.waking_alarms(deployment).values()
            }
            self.expect(
                rearmed == woken,
                f"with {deployed}, the shard-scaler re-arms the alarms that wake it: {len(woken)}",
                f"with {deployed}, the shard-scaler re-arms {sorted(rearmed)} and is woken by {sorted(woken)}",
            )

    @claim
    def the_alarms_that_a_schedule_rearms_are_those_that_wake_the_scaler(self):
        """Otherwise an alarm whose event was lost would stay in ALARM and never act again."""
        for deployed, deployment in self.deployments.items():
            rearmed = [
                (schedule["ScheduleExpression"], set(event["alarms"]))
                for schedule in deployment.of_type("AWS::Scheduler::Schedule").values()
                if (event := self.event_of(schedule))["action"] == "rearm"
            ]
            woken = {alarm["AlarmName"]["Fn::Sub"] for alarm in self.waking_alarms(deployment).values()}
            self.expect(
                rearmed == [("rate(5 minutes)", woken)],
                f"with {deployed}, a schedule re-arms the alarms that wake the shard-scaler: {len(woken)}",
                f"with {deployed}, the alarms {sorted(woken)} wake the shard-scaler, and schedules re-arm {rearmed}",
            )

    @staticmethod
    def event_of(schedule):
        text = schedule["Target"]["Input"]
        return json.loads(text["Fn::Sub"] if isinstance(text, dict) else text)

    @claim
    def what_makes_all_requests_fail_or_cost_money_is_watched(self):
        for deployed, deployment in self.deployments.items():
            existing = {"MainTable": "ExistingTable", "MetadataTable": "ExistingMetadataTable"}
            faults = []
            alarms = {
                alarm["AlarmName"]["Fn::Sub"].removeprefix("${AWS::StackName}-"): alarm
                for alarm in deployment.of_type("AWS::CloudWatch::Alarm").values()
            }
            for name, (namespace, metric, watched) in WATCHED.items():
                given = deployment.values.get(existing.get(watched))
                found = metric_of(alarms.get(name, {}))
                if found != (namespace, metric, [given or {"Ref": watched}]):
                    faults.append(f"{name} watches {found}")
            self.expect(
                not faults,
                f"with {deployed}, {len(WATCHED)} alarms watch Lambda, the metadata and the units",
                f"with {deployed}: {'; '.join(faults)}",
            )

    @claim
    def every_read_replica_wakes_the_scaler(self):
        """The table's metrics do not include what its indexes throttle."""
        for count in map(int, READ_REPLICA_COUNTS):
            deployment = Deployment(self.templates, ReadReplicas=count)
            watched = sorted(
                dimension["Value"]
                for alarm in self.waking_alarms(deployment).values()
                for dimension in alarm["Dimensions"]
                if dimension["Name"] == "GlobalSecondaryIndexName"
            )
            wanted = [f"read-replica-{number}" for number in range(1, count + 1)]
            self.expect(
                watched == wanted,
                f"with {count} read replicas, throttles of {watched} wake the shard-scaler",
                f"with {count} read replicas, throttles of {watched} wake the shard-scaler",
            )

    @claim
    def every_schedule_wakes_the_scaler(self):
        queue = {"Arn": {"Fn::GetAtt": ["LostEventsQueue", "Arn"]}}
        role = {"Fn::GetAtt": ["ScheduleRole", "Arn"]}
        for deployed, deployment in self.deployments.items():
            targets = [each["Target"] for each in deployment.of_type("AWS::Scheduler::Schedule").values()]
            wrong = [
                each
                for each in targets
                if (each["Arn"], each["DeadLetterConfig"], each["RoleArn"]) != (SCALER, queue, role)
            ]
            values = deployment.values
            wanted = [{"action": "rearm"}]
            if values["PeakSchedule"]:
                units = {"number_of_shards": int(values["PeakShards"]), "write_units": int(values["PeakWriteUnits"])}
                wanted.append({"action": "set", "partition_key": values["PeakPartitionKey"]} | units)
            if values["DrainSchedule"]:
                wanted.append({"action": "drain"})
            sent = [
                {name: value for name, value in self.event_of(each).items() if name != "alarms"}
                for each in deployment.of_type("AWS::Scheduler::Schedule").values()
            ]
            self.expect(
                not wrong and sent == wanted,
                f"with {deployed}, schedules send {', '.join(each['action'] for each in sent)} to the shard-scaler",
                f"with {deployed}, schedules send {sent}, not {wanted}; elsewhere go {wrong}",
            )
        sample = json.loads((ROOT / "events/shard-scaler-schedule-set.json").read_text(encoding="utf-8"))
        [peak] = [
            event
            for each in self.of_type("AWS::Scheduler::Schedule").values()
            if (event := self.event_of(each))["action"] == "set"
        ]
        self.expect(
            sample.keys() == peak.keys(),
            "the sample event of a peak is what the schedule sends",
            f"the sample event has {sorted(sample)}, the schedule sends {sorted(peak)}",
        )

    @claim
    def the_metrics_of_an_alarm_are_those_of_its_mode(self):
        limits = {
            "fixed capacity": "ProvisionedThroughput",
            "an on-demand maximum": "MaxOnDemandThroughput",
            "no read replicas": "MaxOnDemandThroughput",
            "no on-demand maximum": "AccountLimit",
            "an existing table": "AccountLimit",
            "an existing table with a maximum": "MaxOnDemandThroughput",
        }
        for deployed, limit in limits.items():
            metrics = {alarm["MetricName"] for alarm in self.waking_alarms(self.deployments[deployed]).values()}
            wanted = {
                f"{kind}{cause}ThrottleEvents" for kind in ("Read", "Write") for cause in ("KeyRangeThroughput", limit)
            }
            self.expect(
                metrics == wanted,
                f"with {deployed}, {', '.join(sorted(wanted))} wake the shard-scaler",
                f"with {deployed}, the shard-scaler is woken by {sorted(metrics)}, not by {sorted(wanted)}",
            )

    @claim
    def every_alarm_action_is_permitted(self):
        permissions = self.of_type("AWS::Lambda::Permission")
        functions = [alias(name) for name in self.functions] + [{"Ref": name} for name in self.functions]
        functions += [{"Fn::GetAtt": [name, "Arn"]} for name in self.functions]
        actions = [
            (alarm, properties["AlarmName"], action)
            for alarm, properties in self.of_type("AWS::CloudWatch::Alarm").items()
            for kind in ("AlarmActions", "OKActions", "InsufficientDataActions")
            for action in as_list(properties.get(kind))
            if action in functions
        ]
        self.expect(
            bool(actions) and all(action == SCALER for _, _, action in actions),
            f"{len(actions)} alarms wake the alias of the shard-scaler",
            f"alarms invoke {actions}",
        )
        for alarm, alarm_name, action in actions:
            wanted = {
                "Action": "lambda:InvokeFunction",
                "FunctionName": action,
                "Principal": ALARM_PRINCIPAL,
                "SourceAccount": {"Ref": "AWS::AccountId"},
                "SourceArn": {"Fn::Sub": ALARM_ARN + alarm_name["Fn::Sub"]},
            }
            permitted = [name for name, body in permissions.items() if body == wanted]
            waits = as_list(self.whole.resources[alarm].get("DependsOn"))
            self.expect(
                bool(permitted) and permitted == waits,
                f"alarm {alarm} may invoke the shard-scaler, before it does",
                f"alarm {alarm} needs {wanted}; that is {permitted}, and it waits for {waits}",
            )
