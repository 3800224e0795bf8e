"""Writes items of one key at a rate with boto3, as a program that knows nothing of shards.

Usage: boto3_client.py KEY BYTES

Each line of the input is a number of writes per second. The output has a line when the program is
ready, and two for each write: "sent SORT_KEY", and "stored SORT_KEY MS" or "failed SORT_KEY MS".
"""

import queue
import sys
import threading
import time

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

THREADS = 64
TICK = 0.01

key, size = sys.argv[1], int(sys.argv[2])
client = boto3.client("dynamodb", config=Config(max_pool_connections=THREADS))
due, output, rate = queue.SimpleQueue(), threading.Lock(), 0


def say(*words):
    with output:
        print(*words, flush=True)


def write():
    while True:
        sort_key = due.get()
        say("sent", sort_key)
        began = time.monotonic()
        item = {"partition_key": {"S": key}, "sort_key": {"S": sort_key}, "data": {"S": "x" * size}}
        try:
            client.put_item(TableName="items", Item=item)
            outcome = "stored"
        except (BotoCoreError, ClientError):
            outcome = "failed"
        say(outcome, sort_key, round((time.monotonic() - began) * 1000, 1))


def schedule():
    last, owed, sort_key = time.monotonic(), 0.0, 0
    while True:
        time.sleep(TICK)
        now = time.monotonic()
        # Writes for which no thread is free within a second are never sent.
        owed, last = min(owed + (now - last) * rate, rate), now
        while owed >= 1 and due.qsize() < rate:
            sort_key = max(time.time_ns() // 1000, sort_key + 1)
            due.put(str(sort_key))
            owed -= 1


for target in [schedule] + [write] * THREADS:
    threading.Thread(target=target, daemon=True).start()
say("ready")
for line in sys.stdin:
    rate = int(line)
