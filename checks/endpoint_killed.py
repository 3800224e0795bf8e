"""Kills the endpoint twenty times under load, while its key grows. What it has acknowledged must be
there, and the key must take writes again.

Usage: endpoint_killed.py LOCAL_EDITION
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import threading
import time
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

KILLS = 20
THREADS = 8
KEY = "hot"
# The shards that the key gets after so many kills.
GROWTHS = {3: 2, 8: 4, 14: 8}


def address(process, word):
    """The address in the line of a program that begins with a word."""
    for line in process.stdout:
        if found := re.match(rf"{word}\s.*?(http://\S+)", line):
            return found[1]
    sys.exit(f"{word}: the program ended before it was ready")


class Endpoint:
    """The program, started again on a new port after each kill."""

    def __init__(self, program, behind):
        self.command = [program, "--table", "items", "--endpoint-url", behind, "--port", "0"]
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.url = address(self.process, "DynamoDB")

    def kill(self):
        self.process.kill()
        self.process.wait()


def client(url):
    quick = Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=5)
    return boto3.client(
        "dynamodb", endpoint_url=url, region_name="us-east-1", config=quick,
        aws_access_key_id="fake", aws_secret_access_key="fake",
    )


def load(endpoint, stopped, acknowledged, lock, number):
    """Puts new items, and counts in one item of this thread, until the endpoint is killed."""
    dynamodb, count = client(endpoint.url), 0
    while not stopped.is_set():
        name = f"{number}-{time.monotonic_ns()}"
        try:
            if count % 3:
                item = {"partition_key": {"S": KEY}, "sort_key": {"S": name}, "n": {"S": name}}
                dynamodb.put_item(TableName="items", Item=item)
                with lock:
                    acknowledged["items"].add(name)
            else:
                key = {"partition_key": {"S": KEY}, "sort_key": {"S": f"counter-{number}"}}
                with lock:
                    acknowledged["sent"][number] += 1
                dynamodb.update_item(
                    TableName="items", Key=key, UpdateExpression="ADD n :one",
                    ExpressionAttributeValues={":one": {"N": "1"}},
                )
                with lock:
                    acknowledged["added"][number] += 1
        except (ClientError, BotoCoreError):
            pass
        count += 1


def grow(api, shards):
    event = {"action": "set", "partition_key": KEY, "number_of_shards": shards}
    request = urllib.request.Request(
        f"{api}/2015-03-31/functions/shard-scaler/invocations", json.dumps(event).encode()
    )
    urllib.request.urlopen(request, timeout=20).close()


def check(dynamodb, acknowledged):
    stored, start = {}, {}
    while True:
        page = dynamodb.query(
            TableName="items", KeyConditionExpression="partition_key = :k", ConsistentRead=True,
            ExpressionAttributeValues={":k": {"S": KEY}}, **start,
        )
        stored.update({item["sort_key"]["S"]: item for item in page["Items"]})
        if "LastEvaluatedKey" not in page:
            break
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    lost = [name for name in acknowledged["items"] if name not in stored]
    assert not lost, f"{len(lost)} acknowledged items are gone: {lost[:3]}"
    for number in range(THREADS):
        added, sent = acknowledged["added"][number], acknowledged["sent"][number]
        value = int(stored.get(f"counter-{number}", {}).get("n", {"N": "0"})["N"])
        assert added <= value <= sent, f"counter {number} is {value}: {added} acknowledged, {sent} sent"


def main():
    (local,) = sys.argv[1:]
    program = str(pathlib.Path(local).with_name("sharding-endpoint"))
    random.seed(os.environ.get("SEED", "1"))
    edition = subprocess.Popen(
        [local, "--port", "0", "--dynamodb-port", "0", "--endpoint-port", "0"],
        stdout=subprocess.PIPE, text=True,
    )
    endpoint = None
    try:
        api = address(edition, "API")
        behind = address(edition, "DynamoDB")
        endpoint = Endpoint(program, behind)
        lock, acknowledged = threading.Lock(), {
            "items": set(), "added": [0] * THREADS, "sent": [0] * THREADS,
        }
        for kill in range(KILLS):
            stopped = threading.Event()
            threads = [
                threading.Thread(
                    target=load, args=(endpoint, stopped, acknowledged, lock, number), daemon=True
                )
                for number in range(THREADS)
            ]
            for thread in threads:
                thread.start()
            if kill in GROWTHS:
                grow(api, GROWTHS[kill])
            stopped.wait(random.uniform(0.3, 1.5))
            endpoint.kill()
            stopped.set()
            for thread in threads:
                thread.join()
            endpoint.start()
        dynamodb, until = client(endpoint.url), time.monotonic() + 20
        while True:
            try:
                dynamodb.put_item(
                    TableName="items",
                    Item={"partition_key": {"S": KEY}, "sort_key": {"S": "last"}},
                )
                break
            except ClientError:
                assert time.monotonic() < until, "the key takes no writes any more"
        check(dynamodb, acknowledged)
        shards = client(behind).get_item(
            TableName="items-metadata", Key={"partition_key": {"S": KEY}}
        ).get("Item", {}).get("number_of_shards", {"N": "1"})["N"]
        print(
            f"{KILLS} kills: {len(acknowledged['items'])} items and {sum(acknowledged['added'])} "
            f"additions acknowledged, none lost; {shards} shards"
        )
    finally:
        for process in filter(None, [endpoint and endpoint.process, edition]):
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
