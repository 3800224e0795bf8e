"""Records the emulator's IAM evaluations and their results.

In an account, services call one another (Lambda writes logs, Scheduler wakes a function, DynamoDB
uses a key). Here they are one process, and their calls are not evaluated. `ask` evaluates them with
the same evaluator.
"""

import json
import threading
from dataclasses import dataclass
from urllib.parse import parse_qs

import cbor2
import tables
from ministack.core import iam_actions, iam_evaluator
from ministack.core.responses import get_account_id, get_region


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: whether a role may do something."""

    role: str
    action: str
    resource: str
    allowed: bool


class Record:
    """All evaluations, each once, until they are taken."""

    def __init__(self):
        self._lock = threading.Lock()
        self._asked = {}

    def note(self, evaluation):
        with self._lock:
            self._asked[evaluation] = None

    def take(self, roles):
        """Returns and removes the evaluations of these roles."""
        with self._lock:
            asked = [each for each in self._asked if each.role in roles]
            for each in asked:
                del self._asked[each]
        return asked


RECORD = Record()


def _role_of(principal):
    return (
        iam_evaluator._role_name_from_assumed_arn(principal)
        if ":assumed-role/" in principal
        else ""
    )


def _question(principal, action, resource, context):
    """Returns the evaluation of a principal, by type and ARN."""
    kind, arn = principal
    return iam_evaluator.EvalContext(
        principal_arn=arn,
        principal_type=kind,
        principal_account=get_account_id(),
        action=action,
        resource_arn=resource,
        region=get_region(),
        service_context={key.lower(): value for key, value in context.items()},
    )


def ask(role_arn, action, resource, context=None):
    """Returns whether a role may do something, by the evaluator that also evaluates requests."""
    role = role_arn.rsplit("/", 1)[-1]
    account = get_account_id()
    principal = ("AssumedRole", f"arn:aws:sts::{account}:assumed-role/{role}/emulated")
    asked = _question(principal, action, resource, context or {})
    policies = iam_evaluator._gather_role_policies(role, account)
    allowed = iam_evaluator.evaluate(asked, policies).decision == "Allow"
    RECORD.note(Evaluation(role, action, resource, allowed))
    return allowed


def service_may(policy, service, action, resource, source_arn):
    """Returns whether a resource's own policy lets an AWS service act for `source_arn`."""
    account = get_account_id()
    principal = ("Service", f"arn:aws:iam::{account}:service-principal/{service}")
    context = {"aws:SourceArn": source_arn, "aws:SourceAccount": account}
    asked = _question(principal, action, resource, context)
    return (
        iam_evaluator.evaluate_resource_policy(policy, asked, service=service).decision == "Allow"
    )


def is_cbor(headers):
    return any("cbor" in headers.get(name, "") for name in ("content-type", "smithy-protocol"))


def _cloudwatch_request(path, headers, body, query):
    """Returns the operation of a request to CloudWatch and its members, in the protocol of any SDK.
    ministack itself finds only the operation of a form."""
    target = headers.get("x-amz-target", "").rsplit(".", 1)[-1] or (
        path.rsplit("/operation/", 1)[1] if "/operation/" in path else ""
    )
    if is_cbor(headers):
        return target, cbor2.loads(body) if body else {}
    if target:
        return target, json.loads(body or b"{}")
    members = parse_qs((body or b"").decode()) | dict(query)
    plain = {
        name: value[0] if isinstance(value, list) else value for name, value in members.items()
    }
    return plain.get("Action", ""), plain


def _named(request):
    """Returns the CloudWatch resource of a request."""
    prefix = f"arn:aws:cloudwatch:{get_region()}:{get_account_id()}"
    if "AlarmName" in request:
        return f"{prefix}:alarm:{request['AlarmName']}"
    if "RuleName" in request:
        return f"{prefix}:insight-rule/{request['RuleName']}"
    return "*"


def install():
    """Installs this in the emulator of this process."""
    find_action, find_resource = iam_actions.extract_iam_action, iam_actions.extract_resource_arn

    def action(service, method, path, headers, body, query):
        if service == "monitoring":
            operation, _ = _cloudwatch_request(path, headers, body, query)
            return f"cloudwatch:{operation}" if operation else None
        return find_action(service, method, path, headers, body, query)

    def resource(service, method, path, headers, body, query, region, account):
        if service == "monitoring":
            return _named(_cloudwatch_request(path, headers, body, query)[1])
        return find_resource(service, method, path, headers, body, query, region, account)

    iam_actions.extract_iam_action, iam_actions.extract_resource_arn = action, resource
    enforce = iam_evaluator.enforce

    def noted(access_key_id, iam_action, service, region, resource_arn="*", service_context=None):
        denial = enforce(access_key_id, iam_action, service, region, resource_arn, service_context)
        principal = iam_evaluator.resolve_principal(access_key_id or "", get_account_id())
        role = _role_of(getattr(principal, "arn", ""))
        if not role:
            return denial
        RECORD.note(Evaluation(role, iam_action, resource_arn, denial is None))
        key = tables.key_needed(iam_action, resource_arn) if denial is None else None
        if key:
            via = {"kms:ViaService": f"dynamodb.{region}.amazonaws.com"}
            denial = enforce(access_key_id, "kms:Decrypt", "kms", region, key, via)
            RECORD.note(Evaluation(role, "kms:Decrypt", key, denial is None))
        return denial

    iam_evaluator.enforce = noted
