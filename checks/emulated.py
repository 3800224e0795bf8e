"""An emulated account: clients, stacks made of the packaged template, signed requests.

Used by deployment.py, in the process of the emulator (checks/ministack).
"""

import copy
import hashlib
import http.client
import json
import os
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from environment import ACCOUNT, REGION
from ministack.services.cloudformation import engine

ROOT = Path(__file__).parent.parent
FUNCTION, NESTED = "AWS::Serverless::Function", "AWS::Serverless::Application"
# Timeout in seconds for a stack, and for any other wait.
PATIENCE = 120
# The media types of a PATCH.
MERGE_PATCH = "application/merge-patch+json"
ADDITION = "application/vnd.dynamodb-write-sharding.add+json"
FUNCTIONS = ("writer", "reader", "shard-scaler")
# The property with the location of the template, for each type of nested stack.
LOCATIONS = {NESTED: "Location", "AWS::CloudFormation::Stack": "TemplateURL"}


def await_that(holds, what, patience=PATIENCE):
    """Calls `holds` until it returns a true value, and returns that value."""
    until = time.monotonic() + patience
    pause = threading.Event()
    while not (found := holds()):
        if time.monotonic() > until:
            raise TimeoutError(f"not within {patience} seconds: {what}")
        pause.wait(0.02)
    return found


def load(path):
    return engine._parse_template(Path(path).read_text(encoding="utf-8"))


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers = status, headers
        self.text = body.decode("utf-8", errors="replace")

    @property
    def json(self):
        return json.loads(self.text) if self.text else None

    def __repr__(self):
        return f"{self.status} {self.text[:300]}"


class Account:
    """The account of a running emulator, used as root."""

    def __init__(self, server):
        self.server = server
        self.root = Credentials(ACCOUNT, "root")
        self._clients = {}

    def client(self, service):
        if service not in self._clients:
            self._clients[service] = boto3.client(
                service,
                endpoint_url=self.server.url,
                region_name=REGION,
                aws_access_key_id=self.root.access_key,
                aws_secret_access_key=self.root.secret_key,
                config=Config(retries={"max_attempts": 1}, parameter_validation=True),
            )
        return self._clients[service]

    def user(self, name, statements):
        """Returns the credentials of a new user with the rights of the statements."""
        iam = self.client("iam")
        iam.create_user(UserName=name)
        if statements:
            document = json.dumps({"Version": "2012-10-17", "Statement": statements})
            iam.put_user_policy(UserName=name, PolicyName="given", PolicyDocument=document)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return Credentials(key["AccessKeyId"], key["SecretAccessKey"])

    def environment(self):
        """Returns the environment for a program that must reach only this account."""
        return {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("AWS_") and name != "PYTHONPATH"
        } | {
            "AWS_ENDPOINT_URL": self.server.url,
            "AWS_ACCESS_KEY_ID": self.root.access_key,
            "AWS_SECRET_ACCESS_KEY": self.root.secret_key,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "SAM_CLI_TELEMETRY": "0",
            "PATH": f"{ROOT / '.tools/python/bin'}:{os.environ['PATH']}",
        }

    def tables(self):
        return set(self.client("dynamodb").list_tables()["TableNames"])

    def invoke(self, function, event, kind="RequestResponse"):
        """Returns the response of a function, and whether it is an error."""
        response = self.client("lambda").invoke(
            FunctionName=function, Payload=json.dumps(event), InvocationType=kind
        )
        payload = response["Payload"].read()
        return (json.loads(payload) if payload else None), "FunctionError" in response


def built(folder, binaries):
    """Writes the template and its nested templates as `sam build` does, with the programs of
    `binaries`. Returns the path of the template."""
    programs = {
        name: next(
            path for path in (binaries / name / "bootstrap", binaries / name) if path.is_file()
        )
        for name in FUNCTIONS
    }
    for name, program in programs.items():
        place = folder / "programs" / name
        place.mkdir(parents=True)
        # Symbols make up most of a development build.
        subprocess.run(["strip", "-o", place / "bootstrap", program], check=True)

    def copy(path, target):
        template = load(path)
        for resource in template["Resources"].values():
            properties = resource.get("Properties", {})
            if resource["Type"] == FUNCTION:
                name = resource.pop("Metadata")["BuildProperties"]["Binary"]
                properties["CodeUri"] = os.path.relpath(folder / "programs" / name, target.parent)
            if location := LOCATIONS.get(resource["Type"]):
                copy(path.parent / properties[location], target.parent / properties[location])
        (template.get("Globals") or {}).get("Function", {}).pop("CodeUri", None)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(template, indent=1), encoding="utf-8")

    copy(ROOT / "template.yaml", folder / "template.yaml")
    return folder / "template.yaml"


class Package:
    """A built template, with any settings. `sam package` puts its code and nested templates into a
    bucket."""

    def __init__(self, account, template, folder, name):
        self.account, self.bucket = account, f"code-{name}"
        account.client("s3").create_bucket(Bucket=self.bucket)
        packaged = folder / f"{name}.yaml"
        command = [
            "sam",
            "package",
            "--template-file",
            template,
            "--s3-bucket",
            self.bucket,
            "--output-template-file",
            packaged,
        ]
        done = subprocess.run(
            command,
            env=account.environment(),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            raise SystemExit(f"sam package: {done.stdout}{done.stderr}")
        self.template = load(packaged)

    def url(self, settings):
        """Returns the address of the template with these settings in every profile."""
        template = copy.deepcopy(self.template)
        for name, value in settings.items():
            template["Mappings"]["Settings"][name] = dict.fromkeys(
                template["Mappings"]["Settings"][name], value
            )
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

    def _wait(self):
        def ended():
            described = self.describe()
            return described if not described["StackStatus"].endswith("_IN_PROGRESS") else None

        return await_that(ended, f"the end of the operation on {self.name}")

    def describe(self):
        return self.api.describe_stacks(StackName=self.identity or self.name)["Stacks"][0]

    def _arguments(self, package, wanted):
        """`wanted` has parameters and settings. The processor is that of this machine."""
        known = package.template["Parameters"]
        settings = {"Architecture": "x86_64"} | {
            name: value for name, value in wanted.items() if name not in known
        }
        return {
            "StackName": self.name,
            "TemplateURL": package.url(settings),
            "Parameters": [
                {"ParameterKey": name, "ParameterValue": value}
                for name, value in wanted.items()
                if name in known
            ],
            "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        }

    def create(self, package, wanted=None):
        made = self.api.create_stack(**self._arguments(package, wanted or {}))
        self.identity = made["StackId"]
        return self._ended("CREATE_COMPLETE")

    def update(self, package, wanted=None):
        self.api.update_stack(**self._arguments(package, wanted or {}))
        return self._ended("UPDATE_COMPLETE")

    def delete(self):
        self.api.delete_stack(StackName=self.identity or self.name)
        return self._ended("DELETE_COMPLETE")

    def _ended(self, wanted):
        described = self._wait()
        if described["StackStatus"] != wanted:
            raise StackFailed(
                f"{self.name} is {described['StackStatus']}: {'; '.join(self.reasons())}"
            )
        return self

    def reasons(self):
        """Returns the reasons of failed resources, in order of time."""
        events = self.api.describe_stack_events(StackName=self.identity or self.name)["StackEvents"]
        failed = [event for event in events if event["ResourceStatus"].endswith("_FAILED")]
        return [
            f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', '')}"
            for event in reversed(failed)
        ]

    @property
    def outputs(self):
        return {
            each["OutputKey"]: each["OutputValue"] for each in self.describe().get("Outputs", [])
        }

    def resources(self, kind=None):
        """Returns physical IDs by logical ID. A dot separates those of nested stacks."""
        return dict(self._resources(self.identity or self.name, "", kind))

    def _resources(self, name, prefix, kind):
        for each in self.api.list_stack_resources(StackName=name)["StackResourceSummaries"]:
            if kind in (None, each["ResourceType"]):
                yield prefix + each["LogicalResourceId"], each["PhysicalResourceId"]
            if each["ResourceType"] == "AWS::CloudFormation::Stack":
                yield from self._resources(
                    each["PhysicalResourceId"], f"{prefix}{each['LogicalResourceId']}.", kind
                )

    def resource(self, logical):
        """Returns the physical ID of a resource in any of the nested stacks."""
        found = [
            identity
            for name, identity in self.resources().items()
            if name.split(".")[-1] == logical
        ]
        if len(found) != 1:
            raise LookupError(f"{self.name} has {len(found)} resources named {logical}")
        return found[0]


class Api:
    """The HTTP API of a stack for one caller. Without credentials it sends unsigned requests."""

    def __init__(self, account, url, credentials=None, token=None):
        self.account, self.host = account, urlsplit(url).netloc
        self.credentials, self.token = credentials, token

    def request(self, method, path, query=None, body=None, headers=None):
        target = path + (f"?{urlencode(query, quote_via=quote)}" if query else "")
        content = json.dumps(body).encode() if body is not None else b""
        headers = (
            {"Host": self.host}
            | ({"Content-Type": "application/json"} if body is not None else {})
            | (headers or {})
        )
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.credentials:
            request = AWSRequest(
                method, f"http://{self.host}{target}", headers=headers, data=content
            )
            SigV4Auth(self.credentials, "execute-api", REGION).add_auth(request)
            headers = dict(request.headers.items())
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.account.server.port, timeout=PATIENCE
        )
        try:
            connection.request(method, target, content, headers)
            response = connection.getresponse()
            return Response(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def put(self, key, sort, attributes=None):
        return self.request(
            "PUT",
            "/item",
            {"partition_key": key, "sort_key": sort},
            {"attributes": attributes or {"n": 1}},
        )

    def post(self, key, sort, attributes=None, headers=None):
        body = {"partition_key": key, "sort_key": sort, "attributes": attributes or {"n": 1}}
        return self.request("POST", "/items", None, body, headers)

    def patch(self, key, sort, body, media_type, headers=None):
        headers = {"Content-Type": media_type} | (headers or {})
        return self.request(
            "PATCH", "/item", {"partition_key": key, "sort_key": sort}, body, headers
        )

    def get(self, key, sort, **query):
        return self.request("GET", "/item", {"partition_key": key, "sort_key": sort, **query})

    def delete(self, key, sort):
        return self.request("DELETE", "/item", {"partition_key": key, "sort_key": sort})

    def query(self, key, **query):
        return self.request("GET", "/items", {"partition_key": key, **query})


class World:
    """The emulated account, and the built template."""

    def __init__(self, account, folder, template):
        self.account, self.folder, self.template = account, folder, Path(template)
        self._package = None
        self._users = 0

    @property
    def package(self):
        """The template after `sam package`."""
        if self._package is None:
            self._package = Package(self.account, self.template, self.folder, "template")
        return self._package

    def stack(self, name, wanted=None):
        """Creates a new stack."""
        return Stack(self.account, name).create(self.package, wanted)

    def user(self, statements):
        self._users += 1
        return self.account.user(f"user-{self._users}", statements)

    def caller(self, stack):
        """Returns the API of a stack, for a user who may only call it."""
        url = stack.outputs["ApiUrl"]
        api = urlsplit(url).netloc.split(".", 1)[0]
        right = {
            "Effect": "Allow",
            "Action": "execute-api:Invoke",
            "Resource": f"arn:aws:execute-api:*:*:{api}/*",
        }
        return Api(self.account, url, self.user([right]))

    def clear(self):
        """Deletes every stack and every table, protected or not."""
        api = self.account.client("cloudformation")
        gone = ("DELETE_COMPLETE",)
        for page in api.get_paginator("describe_stacks").paginate():
            for each in page["Stacks"]:
                if "ParentId" not in each and each["StackStatus"] not in gone:
                    stack = Stack(self.account, each["StackName"])
                    stack.identity = each["StackId"]
                    stack.delete()
        dynamodb = self.account.client("dynamodb")
        for name in self.account.tables():
            dynamodb.update_table(TableName=name, DeletionProtectionEnabled=False)
            dynamodb.delete_table(TableName=name)
