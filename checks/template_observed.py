"""Checks the dashboard, and that the functions write the metrics that it shows."""

import json
import re

from template_claims import Claims, claim
from template_expected import ALARM_ARN, NAMESPACE
from template_metrics import PREFIX, metrics_documented, metrics_written


# A stack without read replicas does not have these. A graph of the dashboard shows the same.
OF_REPLICAS = "${AWS::StackName}-hot-replica-"


class Observed(Claims):
    @claim
    def the_dashboard_is_json(self):
        alarms = {
            each["AlarmName"]["Fn::Sub"]
            for name, each in self.of_type("AWS::CloudWatch::Alarm").items()
            if "AlarmActions" in each and not each["AlarmName"]["Fn::Sub"].startswith(OF_REPLICAS)
        }
        for name, properties in self.of_type("AWS::CloudWatch::Dashboard").items():
            try:
                widgets = json.loads(properties["DashboardBody"]["Fn::Sub"])["widgets"]
            except ValueError as error:
                self.failures.append(f"the body of {name} is not JSON: {error}")
                continue
            shown = {
                arn.removeprefix(ALARM_ARN) for widget in widgets for arn in widget["properties"].get("alarms", [])
            }
            self.expect(
                shown == alarms,
                f"{name} shows {len(widgets)} widgets and {len(shown)} alarms",
                f"{name} shows other alarms: {sorted(shown ^ alarms)}",
            )

    @claim
    def the_functions_write_the_metrics_that_are_looked_at(self):
        path, pattern = NAMESPACE
        [namespace], written = set(pattern.findall(path.read_text(encoding="utf-8"))), metrics_written()
        looked_at = {
            alarm["MetricName"]
            for alarm in self.of_type("AWS::CloudWatch::Alarm").values()
            if alarm.get("Namespace") == namespace
        }
        for properties in self.of_type("AWS::CloudWatch::Dashboard").values():
            looked_at |= set(re.findall(rf'\["{namespace}","(\w+)"', properties["DashboardBody"]["Fn::Sub"]))
        self.expect(
            "ShardingKeysAtMaxShards" in looked_at and looked_at <= written,
            f"the functions write {', '.join(sorted(looked_at))} in {namespace}",
            f"of {sorted(looked_at)} in {namespace}, the functions write only {sorted(written & looked_at)}",
        )

    @claim
    def the_metrics_are_documented(self):
        written, documented = metrics_written(), metrics_documented()
        self.expect(
            written == documented,
            f"docs/operations.md describes the {len(written)} metrics",
            f"docs/operations.md and the code differ in the metrics {sorted(written ^ documented)}",
        )

    @claim
    def the_metrics_of_the_crate_have_a_prefix(self):
        names = metrics_written(["shared/src"])
        bare = sorted(name for name in names if not name.startswith(PREFIX))
        self.expect(
            names and not bare,
            f"the {len(names)} metrics of the crate begin with {PREFIX}",
            f"metrics of the crate do not begin with {PREFIX}: {bare}",
        )
