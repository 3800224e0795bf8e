"""A local edition for checks/adoption.py: its process, its API, and its tables through boto3."""

import base64
import http.client
import json
import os
import re
import subprocess
import time
from decimal import Decimal
from urllib.parse import urlencode

import boto3
from botocore.config import Config

PATIENCE = 120
# No writer and no alarm grows a key.
VARIABLES = {"SCALING": "alarm", "DRAIN_SHARE_PERCENT": "100"}


class Wrong(Exception):
    """A check failed. The message describes the difference."""


def expect(holds, *words):
    if not holds:
        raise Wrong(" ".join(str(word)[:800] for word in words))


def await_that(holds, *what):
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        expect(time.monotonic() < end, "not within", PATIENCE, "seconds:", *what)
        time.sleep(0.1)
    return found


class Edition:
    """`local serve` on ports that the system chooses."""

    def __init__(self, binary, log, *options, **variables):
        self.variables, self.log = os.environ | VARIABLES | variables, log
        command = [binary, "serve", "--port", "0", "--dynamodb-port", "0", "--endpoint-port", "0", *options]
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=self.variables)
        self.address = self.listens("API")

    def listens(self, name):
        def found():
            text = self.log.read_text(errors="replace")
            expect(self.process.poll() is None, "the local edition does not start:", text)
            return re.search(rf"^{name} +http://([^\s/]+)\s", text, re.M)

        return await_that(found, "the start of the local edition")[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()

    def table(self, name):
        # The local edition accepts any credentials.
        session = boto3.Session("fake", "fake", region_name="us-east-1")
        retries = Config(retries={"mode": "standard", "total_max_attempts": 20})
        url = f"http://{self.listens('DynamoDB')}"
        return session.resource("dynamodb", endpoint_url=url, config=retries).Table(name)


def rows_of(table):
    scan = table.meta.client.get_paginator("scan")
    pages = scan.paginate(TableName=table.name, ConsistentRead=True)
    return (row for page in pages for row in page["Items"])


def from_json(value):
    """Reads the API's form of values that JSON does not have."""
    match [*value.items()]:
        case [("$string_set", members)]:
            return set(members)
        case [("$binary", text)]:
            return base64.b64decode(text)
    return value


class Api:
    """One connection to an edition's API."""

    def __init__(self, edition):
        self.connection = http.client.HTTPConnection(edition.address, timeout=40)

    def call(self, method, path, body=None, **headers):
        sent = {"content-type": "application/json"} if body else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, path, body and json.dumps(body, default=float), sent)
        response = self.connection.getresponse()
        text = response.read() or "{}"
        return response.status, json.loads(text, parse_float=Decimal, object_hook=from_json)

    def page(self, key, **query):
        path = f"/items?{urlencode({'partition_key': key, 'limit': 1000} | query)}"
        status, body = self.call("GET", path)
        expect(status == 200, path, "returns", status, body)
        return body

    def all(self, key):
        body = self.page(key, consistent="true")
        items = body["items"]
        while body["cursor"]:
            body = self.page(key, consistent="true", cursor=body["cursor"])
            items += body["items"]
        sorts = [item["sort_key"] for item in items]
        expect(sorts == sorted({*sorts}), key, "is not in order, or has an item twice:", sorts)
        return {item["sort_key"]: item["attributes"] for item in items}

    def scaler(self, outcome, **event):
        def done():
            path = "/2015-03-31/functions/shard-scaler/invocations"
            status, body = self.call("POST", path, event)
            # A key that changed a moment ago has to wait.
            expect(status == 200 and body["outcome"] in (outcome, "unchanged"), event, status, body)
            return body["outcome"] == outcome and body

        return await_that(done, event)
