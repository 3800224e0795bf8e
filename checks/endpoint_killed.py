"""Kills the endpoint twenty times under load, while its key grows. What it has acknowledged must be
there, and the key must take writes again.

Usage: endpoint_killed.py LOCAL_EDITION
"""

import itertools
import os
import pathlib
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from boto3.dynamodb.conditions import Key
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from expect import await_that, expect
from local_edition import Api, Edition, Program, rows_of, table_at

KILLS, THREADS, KEY = 20, 8, "hot"
# The shards that the key gets after so many kills.
GROWTHS = {3: 2, 8: 4, 14: 8}


def client_of(endpoint):
    """Threads may share a client, but not a table."""
    quick = Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=5)
    return table_at(endpoint.listens("DynamoDB"), "items", config=quick).meta.client


class Load:
    """A thread that puts new items, and counts in one item, while the endpoint runs."""

    def __init__(self, number):
        self.number, self.stored, self.added, self.sent = number, set(), 0, 0

    def run(self, client, endpoint):
        for count in itertools.takewhile(lambda _: endpoint.poll() is None, itertools.count()):
            try:
                if count % 3:
                    name = f"{self.number}-{time.monotonic_ns()}"
                    client.put_item(TableName="items", Item={"partition_key": KEY, "sort_key": name, "n": name})
                    self.stored.add(name)
                else:
                    self.sent += 1
                    key = {"partition_key": KEY, "sort_key": f"counter-{self.number}"}
                    addition = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}
                    client.update_item(TableName="items", Key=key, **addition)
                    self.added += 1
            except (ClientError, BotoCoreError):
                pass


def acknowledged(loads):
    return sum(len(load.stored) for load in loads)


def takes_writes(client):
    try:
        return client.put_item(TableName="items", Item={"partition_key": KEY, "sort_key": "last"})
    except ClientError:
        return None


def check(client, loads):
    pages = client.get_paginator("query").paginate(
        TableName="items", KeyConditionExpression=Key("partition_key").eq(KEY), ConsistentRead=True
    )
    stored = {item["sort_key"]: item for page in pages for item in page["Items"]}
    for load in loads:
        lost = load.stored - stored.keys()
        expect(not lost, len(lost), "acknowledged items are gone:", sorted(lost)[:3])
        value = stored.get(f"counter-{load.number}", {}).get("n", 0)
        expect(load.added <= value <= load.sent, "counter", load.number, "is", value, "of", load.added, "to", load.sent)


def main():
    local, draw = pathlib.Path(sys.argv[1]).resolve(), random.Random(os.environ.get("SEED", "1"))
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(THREADS) as pool:
        folder, loads = pathlib.Path(scratch), [Load(number) for number in range(THREADS)]
        with Edition(local, folder / "edition.log") as edition:
            command = [local.with_name("sharding-endpoint"), "--table", "items", "--port", "0"]
            command += ["--endpoint-url", f"http://{edition.dynamodb}"]
            for kill in range(KILLS):
                with Program(command, folder / f"{kill}.log") as endpoint:
                    client, before = client_of(endpoint), acknowledged(loads)
                    running = [pool.submit(load.run, client, endpoint.process) for load in loads]
                    await_that(lambda seen=before: acknowledged(loads) > seen, "a write is acknowledged")
                    if kill in GROWTHS:
                        Api(edition).grow(KEY, GROWTHS[kill])
                    time.sleep(draw.uniform(0.1, 1))
                    endpoint.process.kill()
                    for each in running:
                        each.result()
            with Program(command, folder / "last.log") as endpoint:
                client = client_of(endpoint)
                await_that(lambda: takes_writes(client), "the key takes writes")
                check(client, loads)
            metadata = rows_of(edition.table("items-metadata"))
            widths = {row["partition_key"]: row.get("number_of_shards") for row in metadata}
        stored, added = acknowledged(loads), sum(load.added for load in loads)
        expect(stored and added and widths[KEY] == max(GROWTHS.values()), stored, "items,", added, "additions,", widths)
        print(f"{KILLS} kills: {stored} items and {added} additions acknowledged, none lost; {widths[KEY]} shards")


if __name__ == "__main__":
    main()
