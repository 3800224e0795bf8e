"""An emulated account: clients, stacks made of the packaged template, signed requests.

Used by deployment.py, in the process of the emulator (checks/ministack).
"""

import copy
import hashlib
import http.client
import json
import os
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from environment import ACCOUNT, REGION
from expect import PATIENCE, await_that, output
from ministack.services.cloudformation import engine

ROOT = Path(__file__).parent.parent


class Response:
    def __init__(self, status, body):
        self.status, self.text = status, body.decode("utf-8", errors="replace")

    @property
    def json(self):
        return json.loads(self.text) if self.text else None

    def __repr__(self):
        return f"{self.status} {self.text[:300]}"


class Account:
    """The account of a running emulator, used as root."""

    def __init__(self, server):
        self.server = server
        self._clients = {}

    def client(self, service):
        if service not in self._clients:
            # An account's number is also the key of its root.
            keys = {"aws_access_key_id": ACCOUNT, "aws_secret_access_key": "root", "region_name": REGION}
            config = Config(retries={"max_attempts": 1})
            self._clients[service] = boto3.client(service, endpoint_url=self.server.url, config=config, **keys)
        return self._clients[service]

    def environment(self):
        """Returns the environment for a program. checks/deployment keeps it away from other accounts."""
        return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
            "AWS_ACCESS_KEY_ID": ACCOUNT,
            "AWS_SECRET_ACCESS_KEY": "root",
            "PATH": f"{ROOT / '.tools/python/bin'}:{os.environ['PATH']}",
        }

    def tables(self):
        return set(self.client("dynamodb").list_tables()["TableNames"])

    def create_table(self, name, *keys):
        """Creates a table outside of any stack, whose keys are strings."""
        roles = dict(zip(keys, ("HASH", "RANGE")))
        self.client("dynamodb").create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in roles],
            KeySchema=[{"AttributeName": key, "KeyType": role} for key, role in roles.items()],
            BillingMode="PAY_PER_REQUEST",
        )

    def invoke(self, function, event, kind="RequestResponse"):
        """Returns the response of a function, and whether it is an error."""
        response = self.client("lambda").invoke(FunctionName=function, Payload=json.dumps(event), InvocationType=kind)
        payload = response["Payload"].read()
        return (json.loads(payload) if payload else None), "FunctionError" in response


class Package:
    """A built template, with any settings. `sam package` puts its code and nested templates into a
    bucket."""

    def __init__(self, account, template, folder):
        self.account, self.bucket = account, "code"
        account.client("s3").create_bucket(Bucket=self.bucket)
        packaged = folder / "template.yaml"
        command = ["sam", "package", "--template-file", template, "--s3-bucket", self.bucket]
        output(*command, "--output-template-file", packaged, cwd=folder, env=account.environment())
        self.template = engine._parse_template(packaged.read_text(encoding="utf-8"))

    def url(self, settings):
        """Returns the address of the template with these settings in every profile."""
        template = copy.deepcopy(self.template)
        for name, value in settings.items():
            row = template["Mappings"]["Settings"][name]
            template["Mappings"]["Settings"][name] = dict.fromkeys(row, value)
        body = json.dumps(template).encode()
        key = f"{hashlib.sha256(body).hexdigest()}.template"
        self.account.client("s3").put_object(Bucket=self.bucket, Key=key, Body=body)
        return f"{self.account.server.url}/{self.bucket}/{key}"


class StackFailed(Exception):
    """A stack operation failed. The message gives the reasons."""


class Stack:
    """A stack of the packaged template."""

    def __init__(self, account, name):
        self.account, self.name = account, name
        self.api = account.client("cloudformation")
        self.identity = None

    def describe(self):
        return self.api.describe_stacks(StackName=self.identity or self.name)["Stacks"][0]

    def _arguments(self, package, wanted):
        """`wanted` has parameters and settings. The processor is that of this machine."""
        known = package.template["Parameters"]
        settings = {name: value for name, value in wanted.items() if name not in known}
        given = [{"ParameterKey": name, "ParameterValue": wanted[name]} for name in wanted if name in known]
        return {
            "StackName": self.name,
            "TemplateURL": package.url({"Architecture": "x86_64"} | settings),
            "Parameters": given,
            "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        }

    def create(self, package, wanted=None):
        self.identity = self.api.create_stack(**self._arguments(package, wanted or {}))["StackId"]
        return self._ended("CREATE_COMPLETE")

    def delete(self):
        self.api.delete_stack(StackName=self.identity or self.name)
        return self._ended("DELETE_COMPLETE")

    def _ended(self, wanted):
        await_that(lambda: not self.describe()["StackStatus"].endswith("_IN_PROGRESS"), f"the end of {self.name}")
        if (status := self.describe()["StackStatus"]) != wanted:
            raise StackFailed(f"{self.name} is {status}: {'; '.join(self.reasons())}")
        return self

    def reasons(self):
        """Returns the reasons of failed resources, in order of time."""
        events = self.api.describe_stack_events(StackName=self.identity or self.name)["StackEvents"]
        failed = [event for event in events if event["ResourceStatus"].endswith("_FAILED")]
        return [f"{each['LogicalResourceId']}: {each.get('ResourceStatusReason', '')}" for each in reversed(failed)]

    @property
    def outputs(self):
        return {each["OutputKey"]: each["OutputValue"] for each in self.describe().get("Outputs", [])}

    def resources(self, kind=None, of=None):
        """Returns physical IDs by logical ID, with those of nested stacks."""
        found = {}
        for each in self.api.list_stack_resources(StackName=of or self.identity or self.name)["StackResourceSummaries"]:
            if kind in (None, each["ResourceType"]):
                found[each["LogicalResourceId"]] = each["PhysicalResourceId"]
            if each["ResourceType"] == "AWS::CloudFormation::Stack":
                found |= self.resources(kind, each["PhysicalResourceId"])
        return found


class Api:
    """The HTTP API of a stack for one caller."""

    def __init__(self, account, url, credentials):
        self.account, self.host, self.credentials = account, urlsplit(url).netloc, credentials

    def request(self, method, path, query=None, body=None, headers=None):
        target = path + (f"?{urlencode(query, quote_via=quote)}" if query else "")
        content = json.dumps(body).encode() if body is not None else b""
        headers = {"Host": self.host, "Content-Type": "application/json", **(headers or {})}
        request = AWSRequest(method, f"http://{self.host}{target}", headers=headers, data=content)
        SigV4Auth(self.credentials, "execute-api", REGION).add_auth(request)
        connection = http.client.HTTPConnection("127.0.0.1", self.account.server.port, timeout=PATIENCE)
        try:
            connection.request(method, target, content, dict(request.headers.items()))
            response = connection.getresponse()
            return Response(response.status, response.read())
        finally:
            connection.close()

    def put(self, key, sort, attributes=None):
        body = {"attributes": attributes or {"n": 1}}
        return self.request("PUT", "/item", {"partition_key": key, "sort_key": sort}, body)

    def get(self, key, sort, **query):
        return self.request("GET", "/item", {"partition_key": key, "sort_key": sort, **query})

    def query(self, key, **query):
        return self.request("GET", "/items", {"partition_key": key, **query})


class World:
    """The emulated account, and the built template."""

    def __init__(self, account, folder, template):
        self.account, self.folder, self.template = account, folder, Path(template)
        self.package = Package(account, self.template, folder)
        self._users = 0

    def stack(self, name, wanted=None):
        """Creates a new stack."""
        return Stack(self.account, name).create(self.package, wanted)

    def caller(self, stack):
        """Returns the API of a stack, for a new user who may only call it."""
        url = stack.outputs["ApiUrl"]
        resource = f"arn:aws:execute-api:*:*:{urlsplit(url).netloc.split('.', 1)[0]}/*"
        right = {"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": resource}
        iam, self._users = self.account.client("iam"), self._users + 1
        name, document = f"user-{self._users}", json.dumps({"Version": "2012-10-17", "Statement": [right]})
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="given", PolicyDocument=document)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return Api(self.account, url, Credentials(key["AccessKeyId"], key["SecretAccessKey"]))

    def clear(self):
        """Deletes every stack and every table, protected or not."""
        api, dynamodb = self.account.client("cloudformation"), self.account.client("dynamodb")
        for each in api.describe_stacks()["Stacks"]:
            if "ParentId" not in each and each["StackStatus"] != "DELETE_COMPLETE":
                stack = Stack(self.account, each["StackName"])
                stack.identity = each["StackId"]
                stack.delete()
        for name in self.account.tables():
            dynamodb.update_table(TableName=name, DeletionProtectionEnabled=False)
            dynamodb.delete_table(TableName=name)
