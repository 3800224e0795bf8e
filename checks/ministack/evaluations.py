"""Records the emulator's IAM evaluations and their results.

In an account, services call one another (Lambda writes logs, Scheduler wakes a function, DynamoDB
uses a key). Here they are one process, and their calls are not evaluated. `ask` evaluates them with
the same evaluator.
"""

import json
from collections import Counter
from typing import NamedTuple

import cbor2
import tables
from ministack.core import iam_actions, iam_evaluator
from ministack.core.responses import get_account_id, get_region


class Evaluation(NamedTuple):
    """One evaluation: whether a role may do something."""

    role: str
    action: str
    resource: str
    allowed: bool


# All evaluations of roles, each once.
RECORD = {}
# How many requests of roles are denied next, by action: as by a right that IAM has not yet propagated.
LATE = Counter()


def _note(*evaluation):
    RECORD[Evaluation(*evaluation)] = None


def _question(kind, arn, action, resource, context):
    """Returns the evaluation of a principal, by type and ARN."""
    return iam_evaluator.EvalContext(
        principal_arn=arn,
        principal_type=kind,
        principal_account=get_account_id(),
        action=action,
        resource_arn=resource,
        region=get_region(),
        service_context={key.lower(): value for key, value in context.items()},
    )


def ask(role_arn, action, resource):
    """Returns whether a role may do something, by the evaluator that also evaluates requests."""
    role, account = role_arn.rsplit("/", 1)[-1], get_account_id()
    arn = f"arn:aws:sts::{account}:assumed-role/{role}/emulated"
    asked = _question("AssumedRole", arn, action, resource, {})
    policies = iam_evaluator._gather_role_policies(role, account)
    allowed = iam_evaluator.evaluate(asked, policies).decision == "Allow"
    _note(role, action, resource, allowed)
    return allowed


def service_may(policy, service, action, resource, source_arn):
    """Returns whether a resource's own policy lets an AWS service act for `source_arn`."""
    account = get_account_id()
    context = {"aws:SourceArn": source_arn, "aws:SourceAccount": account}
    asked = _question("Service", f"arn:aws:iam::{account}:service-principal/{service}", action, resource, context)
    return iam_evaluator.evaluate_resource_policy(policy, asked, service=service).decision == "Allow"


def install():
    """Installs this in the emulator of this process."""
    find_action, find_resource = iam_actions.extract_iam_action, iam_actions.extract_resource_arn
    enforce = iam_evaluator.enforce

    # ministack does not find the operation of a CloudWatch request in the protocol of the functions' SDK.
    def action(service, method, path, headers, body, query):
        if service == "monitoring" and "/operation/" in path:
            return f"cloudwatch:{path.rsplit('/', 1)[1]}"
        return find_action(service, method, path, headers, body, query)

    def resource(service, method, path, headers, body, query, region, account):
        if service != "monitoring" or "/operation/" not in path:
            found = find_resource(service, method, path, headers, body, query, region, account)
            # It looks for the names of tables, and tags are of an ARN.
            return json.loads(body)["ResourceArn"] if found == "*" and b"ResourceArn" in body else found
        request = cbor2.loads(body) if body else {}
        for member, kind in (("AlarmName", "alarm:"), ("RuleName", "insight-rule/")):
            if member in request:
                return f"arn:aws:cloudwatch:{region}:{account}:{kind}{request[member]}"
        return "*"

    def noted(access_key_id, iam_action, service, region, resource_arn="*", service_context=None):
        denial = enforce(access_key_id, iam_action, service, region, resource_arn, service_context)
        principal = iam_evaluator.resolve_principal(access_key_id or "", get_account_id())
        arn = getattr(principal, "arn", "")
        if ":assumed-role/" in arn:
            if LATE[iam_action] > 0:
                LATE[iam_action] -= 1
                return enforce(access_key_id, iam_action, service, region, "none", service_context)
            role = iam_evaluator._role_name_from_assumed_arn(arn)
            _note(role, iam_action, resource_arn, denial is None)
            if denial is None and (key := tables.key_needed(iam_action, resource_arn)):
                via = {"kms:ViaService": f"dynamodb.{region}.amazonaws.com"}
                denial = enforce(access_key_id, "kms:Decrypt", "kms", region, key, via)
                _note(role, "kms:Decrypt", key, denial is None)
        return denial

    iam_actions.extract_iam_action, iam_actions.extract_resource_arn, iam_evaluator.enforce = action, resource, noted
