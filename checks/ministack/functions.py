"""Additions to ministack for Lambda and the triggers of functions: see README.md beside this
file."""

import datetime
import json
import time

import cbor2
import evaluations
from ministack.core import lambda_runtime
from ministack.core.responses import get_account_id, get_region, request_scope
from ministack.services import apigateway, cloudwatch, cloudwatch_logs, lambda_svc, scheduler, sqs

ALARMS = "lambda.alarms.cloudwatch.amazonaws.com"
# The reports of Contributor Insights: throttled stored keys with their counts, by table, or by table
# and index with a hyphen.
REPORTS = {}
# Stacks whose schedules' events reach no function.
UNDELIVERED = set()


def _function(reference):
    """Returns the function's record, its name and its qualifier, by name, ARN or alias ARN."""
    parts = reference.split(":function:", 1)[-1].split(":")
    return lambda_svc._functions.get(parts[0]), parts[0], parts[1] if len(parts) > 1 else None


def _may_invoke(service, reference, source_arn):
    """Returns whether the policy of a function, or of its alias, lets a service invoke it."""
    function, _, _ = _function(reference)
    right = "lambda:InvokeFunction"
    return function is not None and evaluations.service_may(function["policy"], service, right, reference, source_arn)


def _invoke_later(reference, event):
    function, config, _ = lambda_svc._get_func_record_for_ref(reference)
    record = lambda_svc._execution_record_for_config(function, {**config, "FunctionArn": reference})
    lambda_svc.invoke_async_with_retry(record, event)


def _settings_of_qualifier(original):
    """Makes asynchronous invocations of an alias use the settings of the alias. ministack uses
    those of the version, which has none."""

    def invoke(record, event):
        base, _, qualifier = _function(record["config"]["FunctionArn"])
        settings = (base.get("event_invoke_configs") or {}).get(qualifier or "$LATEST")
        original({**record, "event_invoke_config": settings, "event_invoke_configs": {}}, event)

    return invoke


def alarm_of(metrics, name, arn="", reason="checked"):
    """Returns the event of an alarm with these metrics, each with its dimensions. [CloudWatch user
    guide, Lambda alarm actions]"""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000+0000")
    metrics = [{"namespace": "AWS/DynamoDB", "name": name, "dimensions": each} for name, each in metrics.items()]
    stats = [{"metric": metric, "period": 60, "stat": "Sum"} for metric in metrics]
    named = [{"id": f"m{number}", "metricStat": stat, "returnData": True} for number, stat in enumerate(stats)]
    state = {"value": "ALARM", "reason": reason, "timestamp": now}
    data = {"alarmName": name, "state": state, "configuration": {"metrics": named}}
    return {"source": "aws.cloudwatch", "alarmArn": arn, "time": now, "region": get_region(), "alarmData": data}


def fire(name):
    """Makes a schedule of EventBridge Scheduler due. Returns the outcome: `invoked`, or, if the event
    reaches no function, whether it was `kept` or `lost`."""
    [(account, region, target)] = [
        (account, region, schedule["Target"])
        for (account, region, key), schedule in scheduler._schedules._data.items()
        if key.split("/", 1)[-1] == name
    ]
    with request_scope(account, region):
        event = json.loads(target["Input"])
        if evaluations.ask(target["RoleArn"], "lambda:InvokeFunction", target["Arn"]):
            if not any(_function(target["Arn"])[1].startswith(stack) for stack in UNDELIVERED):
                _invoke_later(target["Arn"], event)
                return "invoked"
        queue = target["DeadLetterConfig"]["Arn"]
        if not evaluations.ask(target["RoleArn"], "sqs:SendMessage", queue):
            return "lost"
        [url] = [url for url, each in sqs._queues.items() if each["attributes"]["QueueArn"] == queue]
        sqs._act_send_message({"MessageBody": json.dumps(event)}, url)
        return "kept"


def _logged(original):
    """Evaluates the rights for the log and for traces, which Lambda uses for the function."""

    def emit(function, request_id, text, error, duration_ms, *, log_source=None):
        config = function.get("config") or function
        group, role = config["LoggingConfig"]["LogGroup"], config["Role"]
        arn = f"arn:aws:logs:{get_region()}:{get_account_id()}:log-group:{group}"
        wanted = [(action, f"{arn}:log-stream:emulated") for action in ("logs:CreateLogStream", "logs:PutLogEvents")]
        if group not in cloudwatch_logs._log_groups:
            wanted.append(("logs:CreateLogGroup", f"{arn}:*"))
        if (config.get("TracingConfig") or {}).get("Mode") == "Active":
            wanted += [("xray:PutTraceSegments", "*"), ("xray:PutTelemetryRecords", "*")]
        if all([evaluations.ask(role, *each) for each in wanted]):
            original(function, request_id, text, error, duration_ms, log_source=log_source)

    return emit


def _permitted(original):
    async def invoke(integration, api_id, stage, path, method, *rest, **more):
        reference = apigateway._extract_lambda_ref_from_integration_uri(integration.get("integrationUri", ""))
        source = f"arn:aws:execute-api:{get_region()}:{get_account_id()}:{api_id}/{stage}/{method}{path}"
        if not _may_invoke("apigateway.amazonaws.com", reference, source):
            return 500, {"Content-Type": "application/json"}, b'{"message":"Internal Server Error"}'
        return await original(integration, api_id, stage, path, method, *rest, **more)

    return invoke


def _to_functions(original):
    def dispatch(alarm, old, new, reason):
        original(alarm, old, new, reason)
        dimensions = {each["Name"]: each["Value"] for each in alarm.get("Dimensions") or []}
        for action in alarm.get("AlarmActions") or [] if new == "ALARM" else []:
            if ":lambda:" in action and _may_invoke(ALARMS, action, alarm["AlarmArn"]):
                event = alarm_of({alarm["MetricName"]: dimensions}, alarm["AlarmName"], alarm["AlarmArn"], reason)
                _invoke_later(action, event)

    return dispatch


def _with_right(original):
    def route(target, name, event, result):
        if name in lambda_svc._functions:
            role = lambda_svc._functions[name]["config"]["Role"]
            if evaluations.ask(role, "sqs:SendMessage", target):
                original(target, name, event, result)

    return route


def _with_reports(original):
    """Adds `GetInsightRuleReport`, in the protocol of the functions' SDK."""

    async def handle(method, path, headers, body, query):
        if not path.endswith("/operation/GetInsightRuleReport"):
            return await original(method, path, headers, body, query)
        place = cbor2.loads(body)["RuleName"].removeprefix("DynamoDBContributorInsights-PKT-").rsplit("-", 1)[0]
        now = cbor2.CBORTag(1, int(time.time()) // 60 * 60)
        contributors = [
            {
                "Keys": [key],
                "ApproximateAggregateValue": float(count),
                "Datapoints": [{"Timestamp": now, "ApproximateValue": float(count)}],
            }
            for key, count in REPORTS.get(place, {}).items()
        ]
        report = {"KeyLabels": ["partitionKey"], "AggregationStatistic": "Sum", "Contributors": contributors}
        return 200, {"Content-Type": "application/cbor", "smithy-protocol": "rpc-v2-cbor"}, cbor2.dumps(report)

    return handle


def stop_all():
    """Ends every process of a function, so the next request starts a new one."""
    with lambda_runtime._lock:
        workers = [worker for of_one in lambda_runtime._workers.values() for worker in of_one]
        lambda_runtime._workers.clear()
    lambda_runtime.kill_workers(workers)


def install():
    """Installs this in the emulator of this process."""
    changes = {
        lambda_svc: {
            "_emit_lambda_logs": _logged,
            "_route_async_failure": _with_right,
            "invoke_async_with_retry": _settings_of_qualifier,
        },
        apigateway: {"_invoke_lambda_proxy": _permitted},
        cloudwatch: {"_dispatch_alarm_actions": _to_functions, "handle_request": _with_reports},
    }
    for module, of_it in changes.items():
        for name, change in of_it.items():
            setattr(module, name, change(getattr(module, name)))
    # Seconds between two attempts of an asynchronous invocation. In an account these are minutes.
    lambda_svc._LAMBDA_ASYNC_RETRY_BASE_SECONDS, lambda_svc._LAMBDA_ASYNC_RETRY_MAX_SECONDS = 0.1, 0.2
    # Schedules become due only when the check triggers them.
    scheduler._tick_schedules = lambda: None
