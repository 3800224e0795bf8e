"""Programs that print the addresses on which they listen: the local edition, with its API and its
tables through boto3, and the endpoint."""

import base64
import http.client
import json
import os
import re
import subprocess
from decimal import Decimal
from functools import cached_property
from urllib.parse import urlencode

from expect import await_that, expect


class Program:
    """A process, until the end of its context."""

    def __init__(self, command, log, **variables):
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | variables)

    def listens(self, name):
        """Returns the address of the printed line that begins with a name."""

        def found():
            text = self.log.read_text(errors="replace")
            expect(self.process.poll() is None, "the program does not start:", text)
            return re.search(rf"^{name}\b.* http://([^\s/]+)\s", text, re.M)

        return await_that(found, f"{name} of {self.log}")[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()


class Edition(Program):
    """`local serve` on ports that the system chooses."""

    def __init__(self, binary, log, *options, **variables):
        ports = ["--port", "0", "--dynamodb-port", "0", "--endpoint-port", "0"]
        super().__init__([binary, "serve", *ports, *options], log, **variables)

    address = cached_property(lambda self: self.listens("API"))
    dynamodb = cached_property(lambda self: self.listens("DynamoDB"))
    endpoint = cached_property(lambda self: self.listens("endpoint"))

    @property
    def url(self):
        return f"http://{self.address}"

    def table(self, name):
        return table_at(self.dynamodb, name)


def table_at(address, name, **options):
    import boto3  # Not every environment has it.

    # The local edition accepts any credentials.
    session = boto3.Session("fake", "fake", region_name="us-east-1")
    return session.resource("dynamodb", endpoint_url=f"http://{address}", **options).Table(name)


def rows_of(table):
    pages = table.meta.client.get_paginator("scan").paginate(TableName=table.name, ConsistentRead=True)
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
        path = f"/items?{urlencode({'partition_key': key, 'limit': 400} | query)}"
        status, body = self.call("GET", path)
        expect(status == 200, path, "returns", status, body)
        return body

    def all(self, key):
        """Returns the attributes of a key's items by sort key, and checks the order of the pages."""
        items, cursor = [], {}
        while cursor is not None:
            body = self.page(key, consistent="true", **cursor)
            items += body["items"]
            cursor = {"cursor": body["cursor"]} if body["cursor"] else None
        sorts = [item["sort_key"] for item in items]
        expect(sorts == sorted({*sorts}), key, "is not in order, or has an item twice:", sorts)
        return {item["sort_key"]: item["attributes"] for item in items}

    def scaler(self, outcome, **event):
        """Sends an event to the shard-scaler until it has this outcome, and returns the response."""

        def done():
            status, body = self.call("POST", "/2015-03-31/functions/shard-scaler/invocations", event)
            # A key that changed a moment ago has to wait.
            expect(status == 200 and body["outcome"] in (outcome, "unchanged"), event, status, body)
            return body["outcome"] == outcome and body

        return await_that(done, event)

    def grow(self, key, shards):
        return self.scaler("scaled", action="set", partition_key=key, number_of_shards=shards)
