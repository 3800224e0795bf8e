"""Runs the function of templates/custom-resources.yaml in this process, over simulated tables, and
checks its responses to CloudFormation. checks/deployment runs it over DynamoDB's protocol, and
protects tables with it.
"""

import io
import json
import sys
from types import SimpleNamespace
from unittest import mock

from botocore.exceptions import ClientError
from expect import Report
from rules.template import ROOT, load

TEMPLATE = load(ROOT / "templates/custom-resources.yaml")
CODE = TEMPLATE["Resources"]["CustomResourceFunction"]["Properties"]["Code"]["ZipFile"]
SIGNED = "https://bucket.example/arn%3Aaws%7CStack?Signature=s%2Fecret"
MAIN, METADATA = ["HASH partition_key S", "RANGE sort_key S"], ["HASH partition_key S"]
KEYS = {"items": MAIN, "items-metadata": METADATA}


class Function:
    """The function, with services that deny the first requests."""

    def __init__(self, denied=0, invoked=None):
        self.denied, self.asked, self.slept, self.invoked = denied, [], 0, invoked
        self.module = {"__name__": "index"}
        exec(compile(CODE, "index.py", "exec"), self.module)  # noqa: S102, it is the deployed code
        self.module |= {"boto3": self, "time": self}

    def client(self, _):
        return self

    def sleep(self, seconds):
        self.slept += seconds

    def describe_table(self, TableName):  # noqa: N803, as the service calls it
        self.asked.append(TableName)
        if len(self.asked) <= self.denied:
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "DescribeTable")
        if TableName not in KEYS:
            raise ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": TableName}}, "DescribeTable")
        keys = [key.split() for key in KEYS[TableName]]
        return {
            "Table": {
                "TableStatus": "ACTIVE",
                "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind} for _, name, kind in keys],
                "KeySchema": [{"AttributeName": name, "KeyType": role} for role, name, _ in keys],
            }
        }

    def invoke(self, FunctionName, Payload):  # noqa: N803
        sample = json.loads((ROOT / "events/shard-scaler-list.json").read_text(encoding="utf-8"))
        assert (FunctionName, json.loads(Payload)) == ("arn:of:the:shard-scaler", sample), Payload
        self.asked.append(FunctionName)
        error, payload = self.invoked
        return ({"FunctionError": "Unhandled"} if error else {}) | {"Payload": io.BytesIO(json.dumps(payload).encode())}

    def ask(self, resource, kind, **properties):
        """Returns the response that CloudFormation receives: status, reason and data."""
        event = {"StackId": "stack", "RequestId": "request", "LogicalResourceId": "Resource"}
        asked = {"RequestType": kind, "ResourceType": f"Custom::{resource}", "ResourceProperties": properties}
        with mock.patch("urllib.request.urlopen") as opened:
            self.module["handler"]({**event, **asked, "ResponseURL": SIGNED}, None)
        [request] = opened.call_args.args
        signed = (request.full_url, request.get_header("Content-type"))
        assert signed == (SIGNED, ""), "the URL is signed without a content type"
        response = json.loads(request.data)
        assert event.items() <= response.items() and len(request.data) < 4096, response
        return SimpleNamespace(status=response["Status"], reason=response.get("Reason", ""), data=response.get("Data"))


def a_configuration_has_one_fingerprint_and_its_largest_number():
    def data(**properties):
        return Function().ask("Fingerprint", "Update", **properties).data

    first = data(Of=[["items", "200"], ["S"]])
    assert first == data(Of=[["items", "200"], ["S"]]), first
    assert first["Sha256"] not in {
        data(Of=each)["Sha256"] for each in ([["items", "201"], ["S"]], [["items"], ["200", "S"]])
    }
    # As text, 8000 is more than 20000. A rollback to 0.1.0 names no numbers.
    assert [data(Of=[], LargestOf=["20000", "8000"])["Largest"], data(Of=[])["Largest"]] == ["20000", "0"]


def existing_tables_are_what_is_configured_or_the_deployment_fails():
    wrong = {
        ("items-metadata", *MAIN): "needed: HASH partition_key S, RANGE sort_key S",
        ("items", *METADATA): "RANGE sort_key S; needed: HASH partition_key S",
        ("items", "HASH id S", "RANGE sort_key S"): "has the keys HASH partition_key S",
        ("orders", *MAIN): 'The table "orders" does not exist in this account and Region.',
        ("items", "x" * 5000): "needed",
    }
    right = [{"Name": name, "Keys": keys} for name, keys in KEYS.items()]
    assert Function().ask("ExistingTables", "Create", Tables=right).data == {"Passed": "true"}
    for (name, *keys), reason in wrong.items():
        found = Function().ask("ExistingTables", "Update", Tables=[{"Name": name, "Keys": keys}])
        assert found.status == "FAILED" and reason in found.reason, found
        # CloudFormation must be able to delete the stack in any case.
        assert Function().ask("ExistingTables", "Delete", Tables=[{"Name": name, "Keys": keys}]).status == "SUCCESS"


def it_waits_for_a_late_right_but_not_for_ever():
    for denied, status, asked in ((2, "SUCCESS", 3), (99, "FAILED", 5)):
        function = Function(denied)
        found = function.ask("ExistingTables", "Create", Tables=[{"Name": "items", "Keys": MAIN}])
        assert (found.status, len(function.asked)) == (status, asked) and function.slept <= 30, found


def a_function_that_does_not_start_fails_the_deployment_and_lets_the_stack_go():
    lost = (True, {"errorMessage": "items-metadata is empty"})
    rows = [
        ((False, {"keys": [], "outcome": "listed"}), "Create", "SUCCESS", ""),
        (lost, "Create", "FAILED", "items-metadata is empty"),
        ((False, {"outcome": "failed", "detail": "no right"}), "Update", "FAILED", "no right"),
        (lost, "Delete", "SUCCESS", ""),
    ]
    for invoked, kind, status, reason in rows:
        function = Function(invoked=invoked)
        found = function.ask("Start", kind, Function="arn:of:the:shard-scaler")
        assert found.status == status and reason in found.reason and len(function.asked) == (kind != "Delete"), found
    assert Function().ask("Unknown", "Create").status == "FAILED"


CASES = [each for name, each in globals().items() if name.startswith(("a_", "existing_", "it_"))]


def main():
    report = Report()
    for case in CASES:
        try:
            wrong = case()
        except AssertionError as error:
            wrong = repr(error)
        report.none(case.__name__.replace("_", " "), wrong)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
