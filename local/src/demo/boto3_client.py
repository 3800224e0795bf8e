"""Writes items of one key at a rate with boto3, as a program that knows nothing of shards.

Usage: boto3_client.py KEY BYTES

Each line of the input is a number of writes per second. The output has a line when the program is
ready, and two for each write: "sent", and "stored SORT_KEY MS" or "failed SORT_KEY MS".
"""

import sys
import threading
import time

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

THREADS = 64
TICK = 0.05

key, size = sys.argv[1], int(sys.argv[2])
client = boto3.client("dynamodb", config=Config(max_pool_connections=THREADS))
output, rate = threading.Lock(), 0


def say(*words):
    with output:
        print(*words, flush=True)


def put(sort_key):
    say("sent")
    began = time.monotonic()
    item = {"partition_key": {"S": key}, "sort_key": {"S": sort_key}, "data": {"S": "x" * size}}
    try:
        client.put_item(TableName="items", Item=item)
        outcome = "stored"
    except (BotoCoreError, ClientError):
        outcome = "failed"
    say(outcome, sort_key, round((time.monotonic() - began) * 1000, 1))


def write(number):
    """Writes this thread's share."""
    last, owed = time.monotonic(), number / THREADS
    while True:
        time.sleep(TICK)
        now, share = time.monotonic(), rate / THREADS
        # Writes that are due for longer than a second are never sent.
        owed, last = min(owed + (now - last) * share, max(share, 1)), now
        while owed >= 1:
            # The microseconds, made unique among the threads.
            put(str(time.time_ns() // 1000 // THREADS * THREADS + number))
            owed -= 1


for number in range(THREADS):
    threading.Thread(target=write, args=[number], daemon=True).start()
say("ready")
for line in sys.stdin:
    rate = int(line)
