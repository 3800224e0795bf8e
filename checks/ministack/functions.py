"""Additions to ministack for Lambda and the triggers of functions: see README.md beside this
file."""

import datetime
import json
import random
import time
from urllib.parse import parse_qs

import cbor2
import evaluations
from ministack.core import lambda_runtime
from ministack.core.responses import get_account_id, get_region, request_scope
from ministack.services import apigateway, cloudwatch, cloudwatch_logs, lambda_svc, scheduler, sqs
from ministack.services.cloudformation import provisioners

ALARMS = "lambda.alarms.cloudwatch.amazonaws.com"


class Quota:
    """The account's concurrent executions, and what a reservation must leave. [Lambda developer
    guide, reserved concurrency]"""

    UNRESERVED = 100

    def __init__(self):
        self.concurrency = 1_000

    def check(self, name, wanted):
        others = sum(
            int(each.get("concurrency") or 0)
            for other, each in lambda_svc._functions.items()
            if other != name
        )
        if self.concurrency - others - wanted < self.UNRESERVED:
            # Lambda's text.
            what = (
                "Specified ReservedConcurrentExecutions for function decreases account's "
                "UnreservedConcurrentExecution"
            )
            raise ValueError(f"{what} below its minimum value of [{self.UNRESERVED}].")


class Reports:
    """The reports of Contributor Insights for tables and indexes: throttled stored keys, with their
    counts."""

    def __init__(self):
        self._of = {}

    def set(self, place, throttled):
        """Sets a report. `place` is the table's name, or the table's and the index's with a
        hyphen."""
        self._of[place] = throttled

    def none(self, table):
        for place in [place for place in self._of if place.startswith(table)]:
            del self._of[place]

    def of_rule(self, rule):
        place = rule.removeprefix("DynamoDBContributorInsights-PKT-").rsplit("-", 1)[0]
        return self._of.get(place, {})


# The functions that sent a trace.
TRACES = []
# Stacks whose schedules' events reach no function.
UNDELIVERED = set()
# The finished invocations: the function's name, and whether it failed.
INVOCATIONS = []
QUOTA = Quota()
REPORTS = Reports()


def _function(reference):
    """Returns the function's record, its name and its qualifier, by name, ARN or alias ARN."""
    parts = reference.split(":function:", 1)[-1].split(":")
    return lambda_svc._functions.get(parts[0]), parts[0], parts[1] if len(parts) > 1 else None


def may_invoke(service, reference, source_arn):
    """Returns whether the policy of a function, or of its alias, lets a service invoke it."""
    function, _, _ = _function(reference)
    if function is None:
        return False
    return evaluations.service_may(
        function["policy"], service, "lambda:InvokeFunction", reference, source_arn
    )


def _invoke_later(reference, event):
    function, config, _ = lambda_svc._get_func_record_for_ref(reference)
    lambda_svc.invoke_async_with_retry(
        lambda_svc._execution_record_for_config(function, {**config, "FunctionArn": reference}),
        event,
    )


def _settings_of_qualifier(original):
    """Makes asynchronous invocations of an alias use the settings of the alias. ministack uses
    those of the version, which has none."""

    def invoke(record, event):
        base, _, qualifier = _function(record["config"]["FunctionArn"])
        settings = (base.get("event_invoke_configs") or {}).get(qualifier or "$LATEST")
        original({**record, "event_invoke_config": settings, "event_invoke_configs": {}}, event)

    return invoke


def _send(queue_arn, body):
    url = next(
        url for url, queue in sqs._queues.items() if queue["attributes"]["QueueArn"] == queue_arn
    )
    sqs._act_send_message({"MessageBody": body}, url)


def alarm_event(alarm, old, new, reason):
    """Returns CloudWatch's event for a function. [CloudWatch user guide, Lambda alarm actions]"""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000+0000")
    dimensions = {each["Name"]: each["Value"] for each in alarm.get("Dimensions") or []}
    metric = {
        "namespace": alarm.get("Namespace"),
        "name": alarm.get("MetricName"),
        "dimensions": dimensions,
    }
    return {
        "source": "aws.cloudwatch",
        "alarmArn": alarm["AlarmArn"],
        "accountId": get_account_id(),
        "time": now,
        "region": get_region(),
        "alarmData": {
            "alarmName": alarm["AlarmName"],
            "state": {"value": new, "reason": reason, "timestamp": now},
            "previousState": {"value": old, "timestamp": now},
            "configuration": {
                "metrics": [
                    {
                        "id": "m1",
                        "metricStat": {"metric": metric, "period": 60, "stat": "Sum"},
                        "returnData": True,
                    }
                ],
            },
        },
    }


def alarm_of(metrics):
    """Returns an alarm's event with these metrics, each with its dimensions."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000+0000")
    of_table = [
        {"namespace": "AWS/DynamoDB", "name": name, "dimensions": dimensions}
        for name, dimensions in metrics.items()
    ]
    named = [
        {"id": f"m{number}", "metricStat": {"metric": metric, "period": 60, "stat": "Sum"}}
        for number, metric in enumerate(of_table)
    ]
    state = {"value": "ALARM", "reason": "checked", "timestamp": now}
    return {
        "source": "aws.cloudwatch",
        "time": now,
        "alarmData": {"alarmName": "checked", "state": state, "configuration": {"metrics": named}},
    }


def fire(name):
    """Makes a schedule of EventBridge Scheduler due. Returns the outcome: `invoked`, or the reason
    against it and whether the event was kept."""
    for (account, region, key), schedule in list(scheduler._schedules._data.items()):
        if key.split("/", 1)[-1] == name:
            with request_scope(account, region):
                return _fire(schedule)
    raise LookupError(f"there is no schedule {name}")


def _fire(schedule):
    target = schedule["Target"]
    event = json.loads(target["Input"])
    if evaluations.ask(target["RoleArn"], "lambda:InvokeFunction", target["Arn"]):
        function, name, _ = _function(target["Arn"])
        if function is not None and not any(name.startswith(stack) for stack in UNDELIVERED):
            _invoke_later(target["Arn"], event)
            return "invoked"
    queue = (target.get("DeadLetterConfig") or {}).get("Arn")
    if queue and evaluations.ask(target["RoleArn"], "sqs:SendMessage", queue):
        _send(queue, json.dumps(event))
        return "kept"
    return "lost"


def schedules(prefix):
    """Returns the names of the schedules with this prefix."""
    names = [key.split("/", 1)[-1] for (_, _, key) in scheduler._schedules._data]
    return [name for name in names if name.startswith(prefix)]


def _logged(original):
    def emit(function, request_id, text, error, duration_ms, *, log_source=None):
        config = function.get("config") or function
        INVOCATIONS.append((config["FunctionName"], error))
        group = (config.get("LoggingConfig") or {}).get(
            "LogGroup"
        ) or f"/aws/lambda/{config['FunctionName']}"
        arn = f"arn:aws:logs:{get_region()}:{get_account_id()}:log-group:{group}"
        role = config["Role"]
        if group not in cloudwatch_logs._log_groups and not evaluations.ask(
            role, "logs:CreateLogGroup", f"{arn}:*"
        ):
            return
        stream = f"{arn}:log-stream:emulated"
        if not evaluations.ask(role, "logs:CreateLogStream", stream) or not evaluations.ask(
            role, "logs:PutLogEvents", stream
        ):
            return
        if (config.get("TracingConfig") or {}).get("Mode") == "Active":
            # Lambda sends them with the rights of the function.
            if all(
                [
                    evaluations.ask(role, action, "*")
                    for action in ("xray:PutTraceSegments", "xray:PutTelemetryRecords")
                ]
            ):
                TRACES.append(config["FunctionName"])
        original(function, request_id, text, error, duration_ms, log_source=log_source)

    return emit


def _by_weight(original):
    def effective(function, qualifier):
        alias = (function or {}).get("aliases", {}).get(qualifier)
        weights = ((alias or {}).get("RoutingConfig") or {}).get("AdditionalVersionWeights") or {}
        for version, weight in weights.items():
            if random.random() < float(weight):
                return original(function, version)
        return original(function, qualifier)

    return effective


def _permitted(original):
    async def invoke(integration, api_id, stage, path, method, *rest, **more):
        reference = apigateway._extract_lambda_ref_from_integration_uri(
            integration.get("integrationUri", "")
        )
        source = (
            f"arn:aws:execute-api:{get_region()}:{get_account_id()}:{api_id}/{stage}/{method}{path}"
        )
        if not may_invoke("apigateway.amazonaws.com", reference, source):
            return 500, {"Content-Type": "application/json"}, b'{"message":"Internal Server Error"}'
        return await original(integration, api_id, stage, path, method, *rest, **more)

    return invoke


def _to_functions(original):
    def dispatch(alarm, old, new, reason):
        original(alarm, old, new, reason)
        if new != "ALARM" or not alarm.get("ActionsEnabled", True):
            return
        for action in alarm.get("AlarmActions") or []:
            if ":lambda:" in action and may_invoke(ALARMS, action, alarm["AlarmArn"]):
                _invoke_later(action, alarm_event(alarm, old, new, reason))

    return dispatch


def _with_right(original):
    def route(target, name, event, result):
        if name not in lambda_svc._functions:
            return
        role = lambda_svc._functions[name]["config"]["Role"]
        service = target.split(":")[2]
        if evaluations.ask(role, {"sqs": "sqs:SendMessage", "sns": "sns:Publish"}[service], target):
            original(target, name, event, result)

    return route


def _insight_report(asked, is_cbor, is_json=False):
    """Emulates `GetInsightRuleReport` with the reports of the check."""
    throttled = REPORTS.of_rule(asked["RuleName"])
    now = int(time.time()) // 60 * 60
    contributors = [
        {
            "Keys": [key],
            "ApproximateAggregateValue": float(count),
            "Datapoints": [{"Timestamp": now, "ApproximateValue": float(count)}],
        }
        for key, count in throttled.items()
    ]
    response = {
        "KeyLabels": ["partitionKey"],
        "AggregationStatistic": "Sum",
        "AggregateValue": float(sum(throttled.values())),
        "ApproximateUniqueCount": len(throttled),
        "Contributors": contributors,
    }
    if is_cbor:
        for contributor in contributors:
            for datapoint in contributor["Datapoints"]:
                datapoint["Timestamp"] = cbor2.CBORTag(1, datapoint["Timestamp"])
        return (
            200,
            {"Content-Type": "application/cbor", "smithy-protocol": "rpc-v2-cbor"},
            cbor2.dumps(response),
        )
    if is_json:
        return cloudwatch._json_ok(response)
    raise ValueError("GetInsightRuleReport is emulated for the JSON and the CBOR protocol only")


def _with_reports(original):
    async def handle(method, path, headers, body, query):
        if "GetInsightRuleReport" not in path and not headers.get("x-amz-target", "").endswith(
            "GetInsightRuleReport"
        ):
            text = body.decode("utf-8", errors="replace") if body else ""
            if "Action=GetInsightRuleReport" not in text:
                return await original(method, path, headers, body, query)
            return _report_as_xml(text)
        if evaluations.is_cbor(headers):
            return _insight_report(cbor2.loads(body), True)
        return _insight_report(json.loads(body), False, True)

    return handle


def _report_as_xml(text):
    rule = parse_qs(text)["RuleName"][0]
    now = time.strftime("%Y-%m-%dT%H:%M:00Z", time.gmtime())
    members = "".join(
        f"<member><Keys><member>{key}</member></Keys>"
        f"<ApproximateAggregateValue>{count}</ApproximateAggregateValue>"
        f"<Datapoints><member><Timestamp>{now}</Timestamp>"
        f"<ApproximateValue>{count}</ApproximateValue></member></Datapoints></member>"
        for key, count in REPORTS.of_rule(rule).items()
    )
    body = (
        '<GetInsightRuleReportResponse xmlns="http://monitoring.amazonaws.com/doc/2010-08-01/">'
        "<GetInsightRuleReportResult><KeyLabels><member>partitionKey</member></KeyLabels>"
        f"<Contributors>{members}</Contributors></GetInsightRuleReportResult>"
        "<ResponseMetadata><RequestId>emulated</RequestId></ResponseMetadata>"
        "</GetInsightRuleReportResponse>"
    )
    return 200, {"Content-Type": "text/xml"}, body.encode()


def stop_all():
    """Ends every process of a function, so the next request starts a new one."""
    with lambda_runtime._lock:
        workers = [worker for of_one in lambda_runtime._workers.values() for worker in of_one]
        lambda_runtime._workers.clear()
    lambda_runtime.kill_workers(workers)


def install():
    """Installs this in the emulator of this process."""
    lambda_svc._emit_lambda_logs = _logged(lambda_svc._emit_lambda_logs)
    lambda_svc._effective_func_record_for_qualifier = _by_weight(
        lambda_svc._effective_func_record_for_qualifier
    )
    lambda_svc._route_async_failure = _with_right(lambda_svc._route_async_failure)
    lambda_svc.invoke_async_with_retry = _settings_of_qualifier(lambda_svc.invoke_async_with_retry)
    # Seconds between two attempts of an asynchronous invocation. In an account these are minutes.
    lambda_svc._LAMBDA_ASYNC_RETRY_BASE_SECONDS = 0.1
    lambda_svc._LAMBDA_ASYNC_RETRY_MAX_SECONDS = 0.2
    apigateway._invoke_lambda_proxy = _permitted(apigateway._invoke_lambda_proxy)
    cloudwatch._dispatch_alarm_actions = _to_functions(cloudwatch._dispatch_alarm_actions)
    cloudwatch.handle_request = _with_reports(cloudwatch.handle_request)
    # Schedules become due only when the check triggers them.
    scheduler._tick_schedules = lambda: None

    create, update = provisioners._lambda_create, provisioners._lambda_update

    def reserved(name, properties):
        wanted = properties.get("ReservedConcurrentExecutions")
        if wanted is not None:
            QUOTA.check(name, int(wanted))
        lambda_svc._functions[name]["concurrency"] = None if wanted is None else int(wanted)

    def as_text(properties):
        """Converts the variables of a process to text, whatever their type in the template."""
        variables = (properties.get("Environment") or {}).get("Variables") or {}
        return {
            **properties,
            "Environment": {"Variables": {name: str(value) for name, value in variables.items()}},
        }

    def created(logical_id, properties, stack_name):
        name, attributes = create(logical_id, as_text(properties), stack_name)
        try:
            reserved(name, properties)
        except ValueError:
            provisioners._lambda_delete(name, properties)
            raise
        return name, attributes

    def updated(physical_id, old, new, stack_name, logical_id=None):
        made = update(physical_id, as_text(old), as_text(new), stack_name, logical_id)
        if old.get("ReservedConcurrentExecutions") != new.get("ReservedConcurrentExecutions"):
            reserved(physical_id, new)
        return made

    provisioners._RESOURCE_HANDLERS["AWS::Lambda::Function"] |= {
        "create": created,
        "update": updated,
    }
