"""Runs the function of templates/custom-resources.yaml in this process, over simulated tables, and
checks its responses to CloudFormation and the state of the tables. checks/deployment runs the
function over DynamoDB's protocol."""

import io
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

from botocore.exceptions import ClientError
from template_flat import ROOT, Templates

CODE = Templates().nested["CustomResources"]["Resources"]["CustomResourceFunction"]["Properties"]["Code"]["ZipFile"]
TABLES = ("items", "items-metadata")
SIGNED = "/arn%3Aaws%7CStack?Signature=s%2Fecret"


class CloudFormation(BaseHTTPRequestHandler):
    """Receives the responses."""

    taken = []

    def do_PUT(self):  # noqa: N802, the base class calls it so
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.taken.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


class Services:
    """Replaces boto3 for the function: tables by name, each with its keys."""

    def __init__(self):
        self.tables = {
            "items": [("HASH", "partition_key", "S"), ("RANGE", "sort_key", "S")],
            "items-metadata": [("HASH", "partition_key", "S")],
        }
        self.protected = dict.fromkeys(self.tables, False)
        self.waited_for = []

    def client(self, service):
        assert service == "dynamodb", service
        return self

    def describe_table(self, TableName):  # noqa: N803, as the service calls it
        if TableName not in self.tables:
            raise refused("ResourceNotFoundException", f"Requested resource not found: Table: {TableName} not found")
        keys = self.tables[TableName]
        return {
            "Table": {
                "TableStatus": "ACTIVE",
                "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind} for _, name, kind in keys],
                "KeySchema": [{"AttributeName": name, "KeyType": role} for role, name, _ in keys],
                "DeletionProtectionEnabled": self.protected[TableName],
            }
        }

    def get_waiter(self, name):
        assert name == "table_exists", name
        return self

    def wait(self, TableName, WaiterConfig):  # noqa: N803
        assert WaiterConfig["Delay"] * WaiterConfig["MaxAttempts"] <= 60, "the function has two minutes"
        self.waited_for.append(TableName)

    def update_table(self, TableName, DeletionProtectionEnabled):  # noqa: N803
        assert self.waited_for[-1] == TableName, "a table that is changing accepts no other change"
        assert self.protected[TableName] != DeletionProtectionEnabled, "there is nothing to change"
        self.protected[TableName] = DeletionProtectionEnabled


def refused(code, message):
    return ClientError({"Error": {"Code": code, "Message": message}}, "DescribeTable")


class Function:
    def __init__(self, url):
        self.url, self.services, self.module = url, Services(), {"__name__": "index"}
        exec(compile(CODE, "index.py", "exec"), self.module)  # noqa: S102, it is the deployed code
        self.module["boto3"] = self.services

    def ask(self, of_type, kind, properties, name=None):
        event = {
            "RequestType": kind,
            "ResourceType": of_type,
            "ResponseURL": self.url + SIGNED,
            "StackId": "stack",
            "RequestId": "request",
            "LogicalResourceId": "Resource",
            "ResourceProperties": {"ServiceToken": "token", **properties},
        }
        self.module["handler"](event if name is None else event | {"PhysicalResourceId": name}, None)
        [(path, content_type, response)] = CloudFormation.taken
        CloudFormation.taken.clear()
        assert (path, content_type) == (SIGNED, ""), "the URL is signed without a content type"
        repeated = {"StackId": "stack", "RequestId": "request", "LogicalResourceId": "Resource"}
        assert repeated.items() <= response.items(), response
        return response

    def protect(self, kind, protected, name=None, tables=TABLES):
        return self.ask("Custom::DeletionProtection", kind, {"Tables": list(tables), "Protected": protected}, name)

    def protected(self):
        return list(self.services.protected.values())


def a_complete_stack_protects_its_tables_and_its_deletion_leaves_them_so(function):
    response = function.protect("Create", "true")
    assert (response["Status"], function.protected()) == ("SUCCESS", [True, True]), response
    name = response["PhysicalResourceId"]
    assert function.protect("Delete", "true", name)["Status"] == "SUCCESS"
    assert function.protected() == [True, True], "the tables of a deleted stack lost their protection"


def an_update_follows_the_setting_and_keeps_the_resource(function):
    name = function.protect("Create", "true")["PhysicalResourceId"]
    for setting, wanted in (("false", [False, False]), ("true", [True, True]), ("true", [True, True])):
        response = function.protect("Update", setting, name)
        assert (response["Status"], response["PhysicalResourceId"], function.protected()) == ("SUCCESS", name, wanted), (
            response
        )


def deleting_a_stack_that_was_never_complete_unprotects_its_tables(function):
    response = function.protect("Create", "true", tables=[*TABLES, "gone"])
    assert response["Status"] == "FAILED" and "gone" in response["Reason"], response
    assert function.protected() == [True, True]
    response = function.protect("Delete", "true", response["PhysicalResourceId"], tables=[*TABLES, "gone"])
    assert (response["Status"], function.protected()) == ("SUCCESS", [False, False]), response


def a_creation_without_a_response_is_also_rolled_back(function):
    function.protect("Create", "true")
    # CloudFormation makes up an ID if it received none.
    assert function.protect("Delete", "true", "stack-TableProtection-1ABC")["Status"] == "SUCCESS"
    assert function.protected() == [False, False]


def a_configuration_has_one_fingerprint_and_another_has_another(function):
    def fingerprint(kind, values, name=None):
        response = function.ask("Custom::Fingerprint", kind, {"ServiceToken": "any", "Of": values}, name)
        assert response["Status"] == "SUCCESS", response
        return response["PhysicalResourceId"], response["Data"]["Sha256"]

    name, first = fingerprint("Create", [["items", "200"], ["S"]])
    assert fingerprint("Update", [["items", "200"], ["S"]], name) == (name, first)
    assert fingerprint("Update", [["items", "201"], ["S"]], name)[1] != first
    assert fingerprint("Update", [["items"], ["200", "S"]], name)[1] != first, "a value that moves is a change"
    assert fingerprint("Delete", [["items"]], name)[0] == name


def the_largest_of_numbers_is_not_the_last_of_texts(function):
    def largest(**properties):
        response = function.ask("Custom::Fingerprint", "Update", {"Of": [], **properties}, "created")
        assert response["Status"] == "SUCCESS", response
        return response["Data"]["Largest"]

    assert largest(LargestOf=["20000", "8000"]) == "20000"
    assert largest(LargestOf=["0", "8000"]) == "8000"
    # A rollback to 0.1.0.
    assert largest() == "0"


def existing_tables_are_what_is_configured_or_the_deployment_fails(function):
    def check(kind, *tables):
        response = function.ask(
            "Custom::ExistingTables", kind, {"Tables": [{"Name": name, "Keys": keys} for name, keys in tables]}
        )
        return response["Status"], response.get("Data", {}).get("Passed"), response.get("Reason", "")

    main, metadata = ["HASH partition_key S", "RANGE sort_key S"], ["HASH partition_key S"]
    assert check("Create", ("items", main), ("items-metadata", metadata)) == ("SUCCESS", "true", "")
    rows = [
        (("items-metadata", main), ["HASH partition_key S", "needed: HASH partition_key S, RANGE sort_key S"]),
        (("items", metadata), ["RANGE sort_key S; needed: HASH partition_key S"]),
        (("items", ["HASH partition_key S", "RANGE sort_key N"]), ["needed: HASH partition_key S, RANGE sort_key N"]),
        (("items", ["HASH id S", "RANGE sort_key S"]), ["has the keys HASH partition_key S"]),
        (("orders", main), ['The table "orders" does not exist in this account and Region.']),
    ]
    for table, reasons in rows:
        status, passed, reason = check("Update", table)
        assert (status, passed) == ("FAILED", None) and all(part in reason for part in reasons), reason
        # CloudFormation must be able to delete the stack in any case.
        assert check("Delete", table)[0] == "SUCCESS"


def it_waits_for_a_late_right_but_not_for_ever(function):
    class Denying:
        def __init__(self, times):
            self.times, self.asked = times, 0

        def client(self, service):
            return self if service == "dynamodb" else None

        def describe_table(self, **_):
            self.asked += 1
            if self.asked <= self.times:
                raise refused("AccessDeniedException", "dynamodb:DescribeTable")
            return {"Table": {"DeletionProtectionEnabled": True}}

    class Clock:
        waited = 0

        def sleep(self, seconds):
            self.waited += seconds

    for times, status, asked in ((2, "SUCCESS", 3), (99, "FAILED", 5)):
        denying, clock = Denying(times), Clock()
        function.module |= {"boto3": denying, "time": clock}
        response = function.protect("Create", "true", tables=["items"])
        assert (response["Status"], denying.asked) == (status, asked) and clock.waited <= 30, (
            response,
            denying.asked,
            clock.waited,
        )


def a_function_that_does_not_start_fails_the_deployment_and_lets_the_stack_go(function):
    class Lambda:
        def __init__(self, error, payload):
            self.response = ({"FunctionError": "Unhandled"} if error else {}) | {
                "Payload": io.BytesIO(json.dumps(payload).encode())
            }
            self.asked = []

        def client(self, service):
            return self if service == "lambda" else None

        def invoke(self, **arguments):
            self.asked.append(arguments)
            return self.response

    lost = {"errorType": "Error", "errorMessage": "items-metadata is empty, and items has sharded items"}
    rows = [
        (Lambda(False, {"keys": [], "outcome": "listed"}), "Create", "SUCCESS", ""),
        (Lambda(True, lost), "Create", "FAILED", "items-metadata is empty"),
        (Lambda(False, {"outcome": "failed", "detail": "no right"}), "Update", "FAILED", "no right"),
        (Lambda(True, lost), "Delete", "SUCCESS", ""),
    ]
    for scaler, kind, status, reason in rows:
        function.module["boto3"] = scaler
        response = function.ask(
            "Custom::Start",
            kind,
            {"Function": "arn:of:the:shard-scaler", "Configuration": "1"},
            None if kind == "Create" else "created",
        )
        assert response["Status"] == status and reason in response.get("Reason", ""), response
        assert len(scaler.asked) == (kind != "Delete"), "CloudFormation must be able to delete the stack"
        for asked in scaler.asked:
            sample = json.loads((ROOT / "events/shard-scaler-list.json").read_text(encoding="utf-8"))
            assert (asked["FunctionName"], json.loads(asked["Payload"])) == ("arn:of:the:shard-scaler", sample), asked


def a_response_is_short_enough(function):
    response = function.ask("Custom::ExistingTables", "Create", {"Tables": [{"Name": "items", "Keys": ["x" * 5000]}]})
    assert response["Status"] == "FAILED" and len(json.dumps(response)) < 4096, len(json.dumps(response))


def an_unknown_resource_gets_a_response(function):
    assert function.ask("Custom::Unknown", "Create", {})["Status"] == "FAILED"


CASES = [
    a_complete_stack_protects_its_tables_and_its_deletion_leaves_them_so,
    an_update_follows_the_setting_and_keeps_the_resource,
    deleting_a_stack_that_was_never_complete_unprotects_its_tables,
    a_creation_without_a_response_is_also_rolled_back,
    a_configuration_has_one_fingerprint_and_another_has_another,
    the_largest_of_numbers_is_not_the_last_of_texts,
    existing_tables_are_what_is_configured_or_the_deployment_fails,
    it_waits_for_a_late_right_but_not_for_ever,
    a_function_that_does_not_start_fails_the_deployment_and_lets_the_stack_go,
    a_response_is_short_enough,
    an_unknown_resource_gets_a_response,
]


def main():
    server = HTTPServer(("127.0.0.1", 0), CloudFormation)
    Thread(target=server.serve_forever, daemon=True).start()
    failed = 0
    for case in CASES:
        title = case.__name__.replace("_", " ")
        try:
            case(Function(f"http://127.0.0.1:{server.server_port}"))
            print(f"ok    {title}")
        except AssertionError as error:
            failed += 1
            print(f"FAIL  {title}: {error}", file=sys.stderr)
        CloudFormation.taken.clear()
    server.shutdown()
    print(f"{len(CASES) - failed} hold, {failed} do not")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
