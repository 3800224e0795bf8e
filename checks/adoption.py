"""Adopts a table that another program filled, migrates it while it is in use, and rebuilds lost
metadata and lost pages of the directory. It uses real processes, ports and boto3.

Usage: adoption.py LOCAL_BINARY [adoption] [rebuild]

The data is the audit log of tests/data. The check compares every response of the API with the
expected state: one client owns a sort key, and no other changes it. After a write with an unknown
outcome, both states are right, and the client does not write the item again.
"""

import concurrent.futures
import gzip
import http.client
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import zlib
from collections import Counter, defaultdict

import boto3
from boto3.dynamodb.conditions import Key
from botocore.config import Config

ROOT = pathlib.Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "tests/data/audit-log.jsonl.gz"
SEED = int(os.environ.get("SEED", "20140709"))
MAIN, METADATA = "items", "items-metadata"
# The product's own attributes of an item.
LOGICAL, VERSION, DELETED = "_partition_key", "_version", "_deleted"
RESERVED = {
    "partition_key",
    "sort_key",
    LOGICAL,
    VERSION,
    DELETED,
    "_write_id",
    "_width",
    "_applied",
    "_applied_before",
    "_late_until",
}
SHARD_KEY = re.compile(r"(.+)\.([1-9][0-9]*)", re.S)

START_SECONDS = 30
RESPONSE_SECONDS = 40
RUN_SECONDS = 240
# How long a request without capacity is repeated, in seconds.
PATIENCE = 60

ADOPTED_ITEMS = 3_000
CLIENTS = 3
DRAIN_WAIT = 11
MOST_RUNS = 6
# The maximum share of writes with an unknown outcome. With more, the check would prove little.
MOST_UNKNOWN = 0.05

FRESH = "#fresh-"

# The number of items of the keys that grow because they are hot, without those written at the end,
# and the widths that other keys get by the event `set`.
HOT_ITEMS = (1_000, 500, 300)
LAST_ITEMS = 20
SET_TO = ((7,), (3, 11), (20,), (2,))


class Wrong(Exception):
    """A check failed. The message describes the difference."""


def expect(holds, *words):
    if not holds:
        raise Wrong(" ".join(str(part) for part in words))


def show(text):
    print(text, flush=True)


def sample(items):
    """Yields the first changes of the log, as (path, time#commit, attributes)."""
    with gzip.open(SAMPLE, "rt", encoding="utf-8") as lines:
        for _, line in zip(range(items), lines):
            row = json.loads(line)
            yield row["path"], f"{row['time']}#{row['commit']}", {"change": row["change"]}


# Processes


class Edition:
    """`local serve` on ports that the system chooses."""

    started = 0

    def __init__(self, binary, folder, *options, **variables):
        Edition.started += 1
        self.log = folder / f"edition-{Edition.started}.log"
        self.variables = variables
        with self.log.open("wb") as output:
            command = [binary, "serve", "--port", "0", "--dynamodb-port", "0", *options]
            if "--endpoint-url" not in options:
                command += ["--drain-wait", str(DRAIN_WAIT)]
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, env=os.environ | variables
            )
        try:
            self.address = self.listens("API")
            over = "--endpoint-url" in options
            self.dynamodb = None if over else f"http://{self.listens('DynamoDB')}"
        except BaseException:
            self.stop()
            raise

    def listens(self, name):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(
                rf"^{name} +http://(\S+)$|^{name} +http://(\S+) ",
                self.log.read_text(errors="replace"),
                re.M,
            )
            if found:
                return found[1] or found[2]
            self.ended_within(0.05)
        raise Wrong("the local edition does not start:", self.log.read_text(errors="replace"))

    def ended_within(self, seconds):
        try:
            self.process.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            return False

    def stop(self):
        self.process.terminate()
        if not self.ended_within(20):
            self.process.kill()
            self.process.wait()
            raise Wrong("the local edition did not stop after SIGTERM")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def boto3(self):
        config = Config(
            retries={"mode": "standard", "total_max_attempts": 20}, max_pool_connections=8
        )
        # The local edition accepts any credentials.
        resource = boto3.Session("fake", "fake", region_name="us-east-1").resource(
            "dynamodb", endpoint_url=self.dynamodb, config=config
        )
        return resource.Table(MAIN), resource.Table(METADATA)


class Api:
    """One connection to an edition's API."""

    def __init__(self, edition):
        self.connection = http.client.HTTPConnection(edition.address, timeout=RESPONSE_SECONDS)

    def call(self, method, path, body=None, headers=None):
        sent = (
            {"content-type": "application/json"} | (headers or {})
            if body is not None
            else headers or {}
        )
        self.connection.request(method, path, None if body is None else json.dumps(body), sent)
        response = self.connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None

    def read(self, path, **query):
        """Reads, and repeats the request while there is no capacity."""
        end = time.monotonic() + PATIENCE
        while True:
            status, body = self.call("GET", f"{path}?{urllib.parse.urlencode(query)}")
            if status != 503 or time.monotonic() >= end:
                return status, body

    def item(self, key, sort_key):
        status, body = self.read("/item", partition_key=key, sort_key=sort_key, consistent="true")
        if status == 404:
            return None
        expect(status == 200, "GET /item of", key, sort_key, "returns", status, body)
        return body["attributes"]

    def all(self, key, limit=100):
        """Returns every item of a key by consistent pages, and the number of pages."""
        found, pages, query = {}, 0, {"partition_key": key, "limit": limit, "consistent": "true"}
        last = ""
        while True:
            status, body = self.read("/items", **query)
            expect(status == 200, "GET /items of", key, "returns", status, body)
            pages += 1
            for item in body["items"]:
                expect(
                    item["sort_key"] > last,
                    "a page of",
                    key,
                    "has",
                    item["sort_key"],
                    "after",
                    last,
                )
                last = item["sort_key"]
                found[last] = item["attributes"]
            if body["cursor"] is None:
                return found, pages
            query["cursor"] = body["cursor"]

    def scaler(self, **event):
        status, body = self.call("POST", "/2015-03-31/functions/shard-scaler/invocations", event)
        expect(status == 200, "the shard-scaler returns", status, body)
        return body


def of_each(edition, work, inputs):
    """Returns the results of `work(api, input)`, with several calls at once."""
    local = threading.local()

    def one(given):
        if not hasattr(local, "api"):
            local.api = Api(edition)
        return work(local.api, given)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(one, inputs))


def read_all(edition, keys):
    keys = sorted(keys)
    return dict(zip(keys, of_each(edition, lambda api, key: api.all(key)[0], keys)))


def scanned(table, **options):
    options["ConsistentRead"] = True
    while True:
        page = table.scan(**options)
        yield from page["Items"]
        if "LastEvaluatedKey" not in page:
            return
        options["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def keys_of(metadata):
    """Returns the metadata items of keys, without the product's own records."""
    return (
        item for item in scanned(metadata) if not item["partition_key"].startswith("_sharding:")
    )


def is_bare(item):
    return item.get(LOGICAL, item["partition_key"]) == item["partition_key"]


def bare_items(table):
    """Returns the number of items under each bare key."""
    return Counter(item["partition_key"] for item in scanned(table) if is_bare(item))


# Adoption


class Adopted:
    """The items of another program, and the clients that own some of them."""

    def __init__(self):
        self.items = defaultdict(dict)
        for path, sort_key, attributes in sample(ADOPTED_ITEMS):
            self.items[path][sort_key] = attributes
        by_size = sorted(self.items, key=lambda path: (-len(self.items[path]), path))
        # Keys that look like shards of other keys: with the same sort keys, with some of their own,
        # like shards of shards, and like a shard of no key.
        self.parents = [by_size[0], *by_size[10:22]]
        shared, own = {}, list(sample(ADOPTED_ITEMS + 60))[ADOPTED_ITEMS:]
        for number, parent in enumerate(self.parents):
            few = dict(sorted(self.items[parent].items())[:25:2])
            other = {
                sort_key: {"change": "beside"}
                for _, sort_key, _ in own[number * 3 : number * 3 + 3]
            }
            shared[f"{parent}.1"] = {sort_key: {"change": "of .1"} for sort_key in few} | other
            if number % 3 == 1:
                shared[f"{parent}.1.1"] = {sort_key: {"change": "of .1.1"} for sort_key in few}
            if number % 4 == 0:
                shared[f"{parent}.2"] = {sort_key: {"change": "of .2"} for sort_key in few}
        shared[f"{by_size[40]}.x.7"] = {
            sort_key: {"change": "of .7"} for _, sort_key, _ in own[40:50]
        }
        self.items |= shared
        self.wide = {by_size[0]: 3, by_size[1]: 4, by_size[3]: 2, self.parents[4]: 3}
        # Items whose place on some shard is occupied by an item of another key.
        self.occupied = set()
        for key in shared:
            of = SHARD_KEY.fullmatch(key)
            self.occupied |= {(of[1], sort_key) for sort_key in shared[key]}
        self.busy = sorted({*by_size[:6], *self.parents, *shared, *by_size[60:90]})
        self.are_busy = frozenset(self.busy)
        self.count = sum(len(items) for items in self.items.values())

    def owner(self, key, sort_key):
        """Returns the owner of an item, or None. Half of the items of the busy keys have an owner.
        No client changes the rest."""
        drawn = zlib.crc32(f"{SEED} {key} {sort_key}".encode()) % (2 * CLIENTS)
        return drawn if drawn < CLIENTS and key in self.are_busy else None


class Client(threading.Thread):
    """Writes items that no other client writes, and checks every response."""

    def __init__(self, number, edition, adopted, stop):
        super().__init__(daemon=True)
        self.number, self.adopted, self.stop = number, adopted, stop
        self.api, self.random = Api(edition), random.Random(SEED * 10 + number)
        # The possible states: one value, or two after an unknown outcome. None stands for no item.
        self.may = defaultdict(dict)
        self.unowned = defaultdict(dict)
        for key, items in adopted.items.items():
            for sort_key, attributes in items.items():
                owner = adopted.owner(key, sort_key)
                if owner == number:
                    self.may[key][sort_key] = [attributes]
                elif owner is None:
                    self.unowned[key][sort_key] = attributes
        for key, sort_key in sorted(adopted.occupied):
            if (
                key in adopted.are_busy
                and sort_key not in adopted.items[key]
                and adopted.owner(key, sort_key) == number
            ):
                self.may[key].setdefault(sort_key, [None])
        self.done, self.read_items, self.serial, self.wrong = Counter(), 0, 0, None

    def run(self):
        try:
            while not self.stop.is_set():
                self.step()
        except Wrong as wrong:
            self.wrong = str(wrong)
        except Exception as wrong:  # An error of the connection, or of this program.
            self.wrong = repr(wrong)
        finally:
            # Stop the other clients, too, once one has ended.
            self.stop.set()

    def step(self):
        key = self.random.choice(self.adopted.busy)
        if self.random.random() < 0.05:
            key = f"new/{self.number}/{self.random.randrange(20)}"
        kind = self.random.choices(
            ["post", "put", "delete", "create", "get", "page"], [22, 20, 10, 16, 22, 10]
        )[0]
        if kind == "page":
            return self.page(key)
        owned = self.may[key]
        if not owned or self.random.random() < 0.15:
            self.serial += 1
            sort_key = (
                f"{1_403_710_614 + self.random.randrange(10**8)}{FRESH}{self.number}-{self.serial}"
            )
            owned[sort_key] = [None]
        sort_key = self.random.choice(list(owned))
        if kind == "get" or len(owned[sort_key]) > 1:
            return self.get(key, sort_key)
        self.write(kind, key, sort_key)

    def get(self, key, sort_key):
        self.compare(key, sort_key, self.api.item(key, sort_key))
        self.done["GET /item"] += 1

    def compare(self, key, sort_key, found):
        may = self.may[key][sort_key]
        expect(found in may, "a read of", key, sort_key, "has", found, "and must have", may)
        self.read_items += 1
        if len(may) > 1 and found == may[1]:
            # The write took effect, and must not be undone.
            may[:] = [found, found]

    def page(self, key):
        found, pages = self.api.all(key, self.random.choice([20, 100, 1000]))
        for sort_key in self.may[key]:
            self.compare(key, sort_key, found.pop(sort_key, None))
        for sort_key, attributes in self.unowned[key].items():
            there = found.pop(sort_key, None)
            expect(
                there == attributes,
                "a page of",
                key,
                "has",
                there,
                "for",
                sort_key,
                "and must have",
                attributes,
            )
            self.read_items += 1
        for sort_key in found:
            owner = (
                sort_key.rpartition(FRESH)[2].partition("-")[0]
                if FRESH in sort_key
                else self.adopted.owner(key, sort_key)
            )
            of_others = owner is not None and int(owner) != self.number
            expect(
                of_others,
                "a page of",
                key,
                "has",
                sort_key,
                found[sort_key],
                "which no client stored there",
            )
        self.done["full reads"] += 1
        self.done["pages"] += pages

    def write(self, kind, key, sort_key):
        self.serial += 1
        stored = self.may[key][sort_key][0]
        attributes = {"change": kind, "write": f"{self.number}-{self.serial}"}
        item = {"partition_key": key, "sort_key": sort_key, "attributes": attributes}
        one = f"/item?{urllib.parse.urlencode({'partition_key': key, 'sort_key': sort_key})}"
        if kind == "post":
            result, after, good = self.api.call("POST", "/items", item), attributes, 201
        elif kind == "put":
            result, after, good = (
                self.api.call("PUT", one, {"attributes": attributes}),
                attributes,
                200,
            )
        elif kind == "delete":
            result, after, good = self.api.call("DELETE", one), None, 204
        else:
            result = self.api.call("POST", "/items", item, {"if-none-match": "*"})
            after, good = (attributes, 201) if stored is None else (stored, 412)
        status, body = result
        code = body["code"] if status >= 400 else None
        if code in ("no_capacity", "contended"):
            self.done["writes given up"] += 1
        elif code == "outcome_unknown":
            self.done["writes with an unknown outcome"] += 1
            if kind != "create" or stored is None:
                self.may[key][sort_key] = [stored, after]
        elif code == "ambiguous_key":
            # Another key's item occupies the place of the item or its tombstone. A create-only
            # write reads all of the item's places first.
            right = (key, sort_key) in self.adopted.occupied and (
                kind != "create" or stored is None
            )
            expect(right, kind, key, sort_key, "is refused as ambiguous; stored:", stored)
            self.done["409 ambiguous_key"] += 1
        else:
            expect(
                status == good,
                kind,
                key,
                sort_key,
                "returns",
                status,
                body,
                "and must return",
                good,
                "stored:",
                stored,
            )
            self.may[key][sort_key] = [after]
            self.done[f"{kind} {status}"] += 1


def ambiguity(edition, adopted, clients):
    """Checks, before anything moves, that exactly those writes are refused whose place on shard 1
    is occupied by another key's item."""
    api, figures = Api(edition), Counter()
    mine = [
        (client, key, sort_key)
        for client in clients
        for key in client.may
        for sort_key in client.may[key]
    ]
    for client, key, sort_key in mine:
        first = adopted.items.get(f"{key}.1", {})
        if key in adopted.wide or sort_key not in first:
            continue
        stored = client.may[key][sort_key][0]
        item = {"partition_key": key, "sort_key": sort_key, "attributes": {"change": "ambiguous"}}
        one = f"/item?{urllib.parse.urlencode({'partition_key': key, 'sort_key': sort_key})}"
        refused = 409, "ambiguous_key"
        writes = [
            (("POST", "/items", item), {refused}),
            (
                ("POST", "/items", item, {"if-none-match": "*"}),
                {refused if stored is None else (412, "already_exists")},
            ),
            (("PUT", one, {"attributes": item["attributes"]}), {refused}),
            # A deletion that finds no item needs no tombstone. Not every deletion reads first.
            (("DELETE", one), {refused, (204, None)} if stored is None else {refused}),
        ]
        for write, wanted in writes:
            status, body = api.call(*write)
            result = status, body["code"] if status >= 400 else None
            expect(
                result in wanted,
                *write[:2],
                key,
                sort_key,
                "returns",
                result,
                "and must return",
                wanted,
                "stored:",
                stored,
            )
            figures[str(status)] += 1
        client.compare(key, sort_key, api.item(key, sort_key))
        owner = adopted.owner(f"{key}.1", sort_key)
        other = first[sort_key] if owner is None else clients[owner].may[f"{key}.1"][sort_key][0]
        found = api.item(f"{key}.1", sort_key)
        expect(found == other, f"{key}.1", sort_key, "was", other, "and is", found)
    expect(
        min(figures[status] for status in ("409", "412", "204")) > 0,
        "too few places are occupied:",
        figures,
    )
    return figures


class Migration:
    """Runs of `admin migrate`."""

    def __init__(self, binary, folder, edition, table, metadata):
        self.command = [
            binary.with_name("admin"),
            "migrate",
            "--endpoint-url",
            edition.dynamodb,
            "--drain-wait",
            str(DRAIN_WAIT),
        ]
        self.folder, self.variables, self.table, self.metadata = (
            folder,
            edition.variables,
            table,
            metadata,
        )
        self.runs, self.kills, self.process, self.begun = 0, 0, None, set()

    def start(self):
        self.runs += 1
        self.out = self.folder / f"migrate-{self.runs}"
        with self.out.open("wb") as output:
            self.process = subprocess.Popen(
                self.command, stdout=output, stderr=output, env=os.environ | self.variables
            )

    def wait(self, seconds):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def steps(self):
        """Returns the number of keys in each step of the migration, and the number of finished
        keys. `drain` is "began busy_until emptied_at", "-" for none."""

        def step(drain):
            _, busy_until, emptied_at, *_ = drain.split()
            return "emptied" if emptied_at != "-" else "begun" if busy_until == "-" else "moving"

        marked = {
            item["partition_key"]: step(item["drain"])
            for item in keys_of(self.metadata)
            if item.get("draining")
        }
        self.begun |= set(marked)
        return Counter(marked.values()), len(self.begun) - len(marked)

    def kill_when(self, reached, stopped):
        """Kills the program once `reached` returns true for the steps."""
        end = time.monotonic() + RUN_SECONDS
        while not reached(*self.steps()):
            expect(
                self.wait(0.05) is None,
                "it ended before it was killed:",
                self.out.read_text(errors="replace"),
            )
            expect(
                time.monotonic() < end and not stopped.is_set(),
                "it was not killed within",
                RUN_SECONDS,
                "seconds",
            )
        self.process.kill()
        self.process.wait()
        self.kills += 1

    def finish(self, stopped):
        """Waits for the end. Returns the output, and the keys that the program could not move."""
        end = time.monotonic() + RUN_SECONDS
        while (status := self.wait(0.2)) is None:
            expect(
                time.monotonic() < end and not stopped.is_set(),
                "it does not end within",
                RUN_SECONDS,
                "seconds",
            )
        output = self.out.read_text(errors="replace")
        left = dict(re.findall(r"^left: (.+?): (.*)$", output, re.M))
        expect(status == (1 if left else 0), "migrate ends with", status, "and prints", output)
        return output, left

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def fill(table, adopted):
    """Stores most items by BatchWriteItem, and some by PutItem. Returns the number of the
    latter."""
    one_by_one = 0
    with table.batch_writer() as batch:
        for number, (key, items) in enumerate(sorted(adopted.items.items())):
            for sort_key, attributes in items.items():
                item = {"partition_key": key, "sort_key": sort_key} | attributes
                if number % 8 == 0:
                    table.put_item(Item=item)
                    one_by_one += 1
                else:
                    batch.put_item(Item=item)
    return one_by_one


def compare_everything(edition, adopted, clients, keys):
    """Reads all keys in full, and each written item by itself. Returns the number of
    comparisons."""
    compared = 0
    read = read_all(edition, keys)
    for key, found in read.items():
        for client in clients:
            for sort_key in client.may[key]:
                client.compare(key, sort_key, found.pop(sort_key, None))
                compared += 1
        unowned = clients[0].unowned[key]
        expect(
            found == unowned,
            key,
            "has",
            len(found),
            "items without an owner, not",
            len(unowned),
            sorted(found.keys() ^ unowned.keys())[:5],
        )
        compared += len(unowned)
    wanted = [
        (client, key, sort_key)
        for client in clients
        for key in client.may
        for sort_key in client.may[key]
    ]
    gotten = of_each(edition, lambda api, what: api.item(what[1], what[2]), wanted)
    for (client, key, sort_key), found in zip(wanted, gotten):
        client.compare(key, sort_key, found)
    return compared + len(wanted)


def check_the_table(table, metadata, clients, figures):
    """Checks with boto3 that each item is stored only under shard keys, in the right version, and
    only once if the key never had a second shard."""
    # A key without metadata has never grown.
    shards = defaultdict(
        lambda: 1,
        {item["partition_key"]: int(item["number_of_shards"]) for item in keys_of(metadata)},
    )
    copies = defaultdict(list)
    for item in scanned(table):
        expect(not is_bare(item), item["partition_key"], "is still a bare key:", item)
        of = SHARD_KEY.fullmatch(item["partition_key"])
        expect(of and of[1] == item[LOGICAL], "an item is misplaced:", item)
        expect(
            int(of[2]) <= shards[of[1]],
            "an item is beyond the",
            shards[of[1]],
            "shards of its key:",
            item,
        )
        copies[of[1], item["sort_key"]].append(item)
    may = {
        (key, sort_key): [attributes]
        for key, items in clients[0].unowned.items()
        for sort_key, attributes in items.items()
    }
    may |= {
        (key, sort_key): values
        for client in clients
        for key in client.may
        for sort_key, values in client.may[key].items()
    }
    for place, stored in copies.items():
        expect(place in may, place, "was stored by no client:", stored)
        expect(len(stored) == 1 or shards[place[0]] > 1, place, "is stored twice:", stored)
    for place, values in may.items():
        # Items that were not written since the adoption have no version.
        newest = max(copies.get(place, ()), key=lambda item: item.get(VERSION, 0), default=None)
        if newest and newest.get(DELETED):
            newest = None
        found = newest and {name: value for name, value in newest.items() if name not in RESERVED}
        expect(found in values, place, "is", found, "and must be", values)
    tombstones = sum(bool(item.get(DELETED)) for stored in copies.values() for item in stored)
    figures["items and tombstones at the end"] = len(copies)
    figures["tombstones"] = tombstones
    figures["older copies on other shards"] = sum(map(len, copies.values())) - len(copies)


def adoption(binary, folder):
    figures, draw = {}, random.Random(SEED)
    adopted = Adopted()
    options = (
        "--data-dir",
        str(folder / "adopted"),
        "--partitions",
        "8",
        "--partition-write-units",
        "200",
    )
    with Edition(binary, folder, *options, ADOPT_UNSHARDED="true", SCALING="writer") as edition:
        table, metadata = edition.boto3()
        one_by_one = fill(table, adopted)
        figures["items of another program"] = adopted.count
        figures["of them by PutItem"] = one_by_one
        figures["keys"] = len(adopted.items)
        figures["items whose place on a shard is another key's"] = len(adopted.occupied)
        expect(
            bare_items(table).total() == adopted.count,
            "boto3 stored",
            bare_items(table).total(),
            "items of",
            adopted.count,
        )

        found = read_all(edition, adopted.items)
        for key, items in adopted.items.items():
            expect(
                found[key] == items,
                key,
                "has",
                len(found[key]),
                "items before anything is written, not",
                len(items),
            )

        stop = threading.Event()
        clients = [Client(number, edition, adopted, stop) for number in range(CLIENTS)]
        statuses = ambiguity(edition, adopted, clients)
        figures["writes to occupied places: 409, 412, 204"] = ", ".join(
            str(statuses[status]) for status in ("409", "412", "204")
        )
        for key, shards in adopted.wide.items():
            scaled = Api(edition).scaler(action="set", partition_key=key, number_of_shards=shards)
            expect(scaled["outcome"] == "scaled", key, scaled)

        migration = Migration(binary, folder, edition, table, metadata)
        for client in clients:
            client.start()
        try:
            keys = len(adopted.items)
            copied, through = (
                draw.randint(keys // 10, keys // 2),
                draw.randint(keys // 10, keys // 2),
            )
            migration.start()
            migration.kill_when(lambda steps, _: steps["moving"] >= copied, stop)
            # The other keys have no copies yet.
            missing = missing_without_adoption(binary, folder, edition, adopted, clients[0].unowned)
            migration.start()
            migration.kill_when(lambda _, done: done >= through, stop)
            bare = bare_items(table)
            expect(
                0 < bare.total() < adopted.count,
                "it was killed too early or too late:",
                bare.total(),
                "items are under bare keys",
            )
            figures["keys that were moved at the first kill, done at the second"] = (
                f"{copied}, {through}"
            )
            figures["items under bare keys at the second kill"] = bare.total()
            figures["items missing after the first without ADOPT_UNSHARDED"] = missing
            left_once = 0
            for _ in range(MOST_RUNS):
                migration.start()
                output, left = migration.finish(stop)
                bare = bare_items(table)
                expect(
                    set(left) == set(bare),
                    "migrate left",
                    sorted(left),
                    "but these have items under bare keys:",
                    dict(bare),
                )
                if not left:
                    break
                wrong = {
                    key: why for key, why in left.items() if "another partition key" not in why
                }
                expect(not wrong, "migrate left", wrong)
                left_once += len(left)
            expect(
                "no items are left under bare keys" in output,
                "after",
                migration.runs,
                "runs migrate prints",
                output,
            )
            figures["runs of migrate, kills"] = f"{migration.runs}, {migration.kills}"
            figures["keys left to a later run because their places were occupied"] = left_once
        finally:
            stop.set()
            migration.stop()
            for client in clients:
                client.join(RESPONSE_SECONDS * 2)
            # A client's failure is the cause of other failures, so report it first.
            met = [f"client {client.number}: {client.wrong}" for client in clients if client.wrong]
            expect(not met, "; ".join(met))
        expect(not any(client.is_alive() for client in clients), "a client hangs")
        read_under_load = sum(client.read_items for client in clients)

        keys = {*adopted.items, *(key for client in clients for key in client.may)}
        compared = compare_everything(edition, adopted, clients, keys)
        check_the_table(table, metadata, clients, figures)
        event = Api(edition).scaler(action="migrate")
        expect(
            event["outcome"] == "handled" and event["unsharded_items"] == 0,
            "the event finds",
            event,
        )

    with Edition(binary, folder, *options, SCALING="writer") as edition:
        compared += compare_everything(edition, adopted, clients, keys)

    done = sum((client.done for client in clients), Counter())
    writes = sum(
        count
        for what, count in done.items()
        if what.split()[0] in ("post", "put", "delete", "create", "writes", "409")
    )
    unknown = done["writes with an unknown outcome"]
    expect(
        unknown <= MOST_UNKNOWN * writes, unknown, "of", writes, "writes have an unknown outcome"
    )
    for what in (
        "post 201",
        "put 200",
        "delete 204",
        "create 201",
        "create 412",
        "GET /item",
        "full reads",
        "409 ambiguous_key",
    ):
        expect(done[what] > 0, "the load had no", what)
    figures |= dict(sorted(done.items()))
    figures["writes"] = writes
    figures["items read under load, each checked"] = read_under_load
    figures["items read afterwards, with and without ADOPT_UNSHARDED"] = compared
    return figures


def missing_without_adoption(binary, folder, edition, adopted, unowned):
    """Returns the number of items that an edition without ADOPT_UNSHARDED misses in the same
    tables. If it missed none, this check would prove nothing."""
    # Without the busy keys, for which the clients store items meanwhile.
    keys = adopted.items.keys() - adopted.are_busy
    with Edition(binary, folder, "--endpoint-url", edition.dynamodb) as unaware:
        found = read_all(unaware, keys)
    missing = sum(len(unowned[key].keys() - found[key].keys()) for key in keys)
    expect(
        missing > 0,
        "nothing is missing without ADOPT_UNSHARDED, although bare keys have items",
    )
    return missing


# Rebuilding


def post(api, key, items):
    """Stores items by batches, until all of them are stored."""
    waiting, end = sorted(items.items()), time.monotonic() + RUN_SECONDS
    while waiting:
        batch, rest = waiting[:500], waiting[500:]
        body = [
            {"partition_key": key, "sort_key": sort_key, "attributes": attributes}
            for sort_key, attributes in batch
        ]
        status, response = api.call("POST", "/items/batch", {"items": body})
        expect(status in (200, 207), "a batch of", key, "returns", status, response)
        wrong = [
            failed
            for failed in response["failed"]
            if failed["code"] not in ("no_capacity", "outcome_unknown")
        ]
        expect(
            not wrong and time.monotonic() < end,
            "items of",
            key,
            "are not stored:",
            response["failed"][:3],
        )
        # A plain POST may be repeated.
        waiting = [batch[failed["index"]] for failed in response["failed"]] + rest


def widths(metadata):
    return {
        item["partition_key"]: (
            item["number_of_shards"],
            item.get("read_shards", item["number_of_shards"]),
        )
        for item in keys_of(metadata)
    }


def settled_width(metadata, key):
    """Returns the key's width once no change of it is under way."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        item = metadata.get_item(Key={"partition_key": key}, ConsistentRead=True).get("Item", {})
        if "closing" not in item:
            return item.get("number_of_shards", 1)
        time.sleep(0.05)
    raise Wrong(key, "does not stop growing")


def post_until_calm(api, metadata, key, items):
    """Stores items until the width no longer changes, so that the last width has items. `rebuild`
    cannot find a width without items."""
    sort_keys, after = sorted(items), settled_width(metadata, key)
    for start in range(0, len(sort_keys), LAST_ITEMS):
        before = after
        post(
            api,
            key,
            {sort_key: items[sort_key] for sort_key in sort_keys[start : start + LAST_ITEMS]},
        )
        after = settled_width(metadata, key)
        if before == after and start:
            return sort_keys[: start + LAST_ITEMS]
    raise Wrong(key, "grows with every few items")


def rows_by_key():
    rows = defaultdict(dict)
    for path, sort_key, attributes in sample(20_000):
        rows[path][sort_key] = attributes
    return {path: rows[path] for path in sorted(rows, key=lambda path: (-len(rows[path]), path))}


def grow_by_set(api, key, items, shards):
    """Stores a part of the items under each width."""
    ordered, parts = sorted(items.items()), len(shards) + 1
    for number in range(parts):
        if number:
            response = api.scaler(action="set", partition_key=key, number_of_shards=shards[number - 1])
            expect(
                response["outcome"] == "scaled", "set", key, "to", shards[number - 1], "returns", response
            )
        post(
            api,
            key,
            dict(ordered[number * len(ordered) // parts : (number + 1) * len(ordered) // parts]),
        )
    return items


def grow_by_heat(api, metadata, key, items, at_once):
    """Stores `at_once` items at once, and then some more in small batches. Returns the stored
    items."""
    ordered = sorted(items.items())
    first, rest = dict(ordered[:at_once]), dict(ordered[at_once:])
    post(api, key, first)
    return first | {
        sort_key: rest[sort_key] for sort_key in post_until_calm(api, metadata, key, rest)
    }


def rebuilt(binary, folder, edition, keys):
    """Runs `admin rebuild`. Returns the number of complete keys, lost keys and keys without some
    items, the number of entries that were behind, and the output."""
    command = [binary.with_name("admin"), "rebuild", "--endpoint-url", edition.dynamodb]
    done = subprocess.run(
        command,
        env=os.environ | edition.variables,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    numbers = re.fullmatch(
        r"(\d+) items; metadata of keys with several shards: (\d+) complete, "
        r"(\d+) lost or damaged, (\d+) without some items\n"
        r"(\d+) entries of the directory were behind the metadata, "
        r"(\d+) keys were restored from the directory\n",
        done.stdout,
    )
    expect(
        done.returncode == 0 and numbers,
        "rebuild ends with",
        done.returncode,
        "and prints",
        done.stdout,
        done.stderr,
    )
    # An item that was replaced after its key had grown is stored at two places.
    expect(
        int(numbers[1]) >= sum(map(len, keys.values())),
        "rebuild has seen",
        numbers[1],
        "items of",
        sum(map(len, keys.values())),
    )
    *counts, behind, _ = map(int, numbers.groups()[1:])
    return tuple(counts), behind, done.stdout.strip()


def directory_serves(edition, key, whole, code):
    """Checks that the page of a key serves its readers and writers although the key's item is lost
    or damaged. Requests that need the item fail."""
    api = Api(edition)
    found = api.all(key)[0]
    expect(found == whole, "by its page", key, "has", len(found), "items of", len(whole))
    sort_key = min(whole)
    one = f"/item?{urllib.parse.urlencode({'partition_key': key, 'sort_key': sort_key})}"
    status, body = api.call("PUT", one, {"attributes": whole[sort_key]})
    expect(status == 200, "PUT", key, "returns", status, body)
    status, body = api.read("/shards", partition_key=key)
    expect(
        (status, body.get("code")) == (500, code),
        "GET /shards of",
        key,
        "returns",
        status,
        body,
        "and must return 500",
        code,
    )


def delete_pages(metadata):
    pages = [
        item["partition_key"]
        for item in scanned(metadata)
        if item["partition_key"].startswith("_sharding:page:")
    ]
    for page in pages:
        metadata.delete_item(Key={"partition_key": page})
    return len(pages)


def rebuild(binary, folder):
    figures, variables, rows, held = {}, {"SCALING": "writer"}, rows_by_key(), {}
    by_size = list(rows)
    hot, set_by_event = by_size[: len(HOT_ITEMS)], by_size[len(HOT_ITEMS) : len(HOT_ITEMS) + len(SET_TO)]
    plain = by_size[len(hot) + len(set_by_event) + 20 :: 20]
    # The schedule would restore entries of a lost page, and rebuild could not count them.
    options = (
        "--data-dir",
        str(folder / "rebuilt"),
        "--partitions",
        "16",
        "--alarm-period",
        "3600",
        "--drain-period",
        "3600",
    )
    # Here no writer grows a key by itself, and no alarm comes.
    with Edition(binary, folder, *options, SCALING="alarm") as edition:
        work = [*zip(set_by_event, SET_TO), *((key, ()) for key in plain)]
        held |= zip(
            [*set_by_event, *plain],
            of_each(
                edition, lambda api, one: grow_by_set(api, one[0], rows[one[0]], one[1]), work
            ),
        )
    with Edition(binary, folder, *options, "--partition-write-units", "30", **variables) as edition:
        _, metadata = edition.boto3()
        work = list(zip(hot, HOT_ITEMS))
        held |= zip(
            hot,
            of_each(
                edition,
                lambda api, one: grow_by_heat(api, metadata, one[0], rows[one[0]], one[1]),
                work,
            ),
        )
        saved = widths(metadata)
    several = sorted(key for key, (shards, _) in saved.items() if shards > 1)
    expect(
        {*hot, *set_by_event} == {*several} == saved.keys(),
        "these have several shards:",
        several,
        "and these have metadata:",
        sorted(saved),
    )
    expect(
        [saved[key][0] for key in set_by_event] == [shards[-1] for shards in SET_TO],
        "keys that grew by the event set:",
        [saved[key] for key in set_by_event],
    )
    figures["items"], figures["keys"] = sum(map(len, held.values())), len(held)
    figures["shards of the hot keys"] = ", ".join(str(saved[key][0]) for key in hot)
    figures["shards of the keys that grew by the event set"] = ", ".join(str(saved[key][0]) for key in set_by_event)

    with Edition(binary, folder, *options, **variables) as edition:
        table, metadata = edition.boto3()
        expect(read_all(edition, held) == held, "a full read before anything is lost differs")
        saved = widths(metadata)

        # Without pages, instances read the item of each key.
        figures["pages of the directory"] = delete_pages(metadata)
        compared = same_again(edition, metadata, held, saved)
        counts, behind, output = rebuilt(binary, folder, edition, held)
        show(f"\nall pages lost: {output}")
        expect(
            (counts, behind) == ((len(several), 0, 0), len(several)),
            "rebuild counts",
            counts,
            behind,
        )
        compared += same_again(edition, metadata, held, saved)
        for key in several:
            metadata.delete_item(Key={"partition_key": key})

    # A new process, without cached state.
    with Edition(binary, folder, *options, **variables) as edition:
        table, metadata = edition.boto3()
        for key in several:
            directory_serves(edition, key, held[key], "metadata_lost")
        counts, _, output = rebuilt(binary, folder, edition, held)
        show(f"all items lost: {output}")
        expect(
            counts == (0, len(several), 0),
            "rebuild counts",
            counts,
            "and",
            len(several),
            "keys were lost",
        )
        compared += same_again(edition, metadata, held, saved)
        for key in several:
            metadata.delete_item(Key={"partition_key": key})
        delete_pages(metadata)

    with Edition(binary, folder, *options, **variables) as edition:
        table, metadata = edition.boto3()
        api, refused = Api(edition), 0
        # The product detects the loss by an item on the first further shard. A key without one
        # there has few items.
        unseen = [
            key
            for key in several
            if not table.query(KeyConditionExpression=Key("partition_key").eq(f"{key}.2"), Limit=1)[
                "Items"
            ]
        ]
        expect(not unseen, "no item is on shard 2 of", unseen)
        for key in several:
            sort_key = min(held[key])
            one = f"/item?{urllib.parse.urlencode({'partition_key': key, 'sort_key': sort_key})}"
            page = f"/items?{urllib.parse.urlencode({'partition_key': key})}"
            for request in (
                ("GET", page),
                ("GET", f"{page}&consistent=true"),
                ("GET", one),
                ("PUT", one, {"attributes": held[key][sort_key]}),
            ):
                status, body = api.call(*request)
                expect(
                    (status, body.get("code")) == (500, "metadata_lost"),
                    *request[:2],
                    "returns",
                    status,
                    str(body)[:300],
                )
                refused += 1
        figures["requests to lost keys, each with the response 500 metadata_lost"] = refused

        counts, _, output = rebuilt(binary, folder, edition, held)
        show(f"all items and pages lost: {output}")
        expect(
            counts == (0, len(several), 0),
            "rebuild counts",
            counts,
            "and",
            len(several),
            "keys were lost",
        )
        compared += same_again(edition, metadata, held, saved)

        damaged, registered = hot[0], set_by_event[0]
        metadata.put_item(Item={"partition_key": damaged, "number_of_shards": "many"})
        metadata.put_item(
            Item={
                "partition_key": registered,
                "number_of_shards": 1,
                "last_updated": 1,
                "shard_history": {"1:1"},
                "generation": 1,
            }
        )
        directory_serves(edition, damaged, held[damaged], "internal_error")
        directory_serves(edition, registered, held[registered], "metadata_lost")
        counts, _, output = rebuilt(binary, folder, edition, held)
        show(f"one damaged, one registered again: {output}")
        expect(counts == (len(several) - 2, 1, 1), "rebuild counts", counts)
        compared += same_again(edition, metadata, held, saved)

    with Edition(binary, folder, *options, **variables) as edition:
        table, metadata = edition.boto3()
        compared += same_again(edition, metadata, held, saved)
        event = Api(edition).scaler(action="rebuild")
        kept = event["outcome"] == "handled" and event["keys"] == {"kept": len(several)}
        expect(kept, "the event finds", event)
    figures["widths compared"] = 6 * len(saved)
    figures["items read and compared"] = compared
    return figures


def same_again(edition, metadata, held, saved):
    """Compares widths, full reads, and single reads of keys with several shards."""
    now = widths(metadata)
    expect(
        now == saved,
        "widths were and are",
        {
            key: (saved.get(key), now.get(key))
            for key in saved.keys() | now.keys()
            if saved.get(key) != now.get(key)
        },
    )
    read = read_all(edition, held)
    wrong = {key: (len(found), len(held[key])) for key, found in read.items() if found != held[key]}
    expect(not wrong, "full reads have, and must have, items:", wrong)
    draw = random.Random(SEED)
    places = [
        (key, sort_key)
        for key in sorted(saved)
        for sort_key in draw.sample(sorted(held[key]), min(60, len(held[key])))
    ]
    for (key, sort_key), found in zip(
        places, of_each(edition, lambda api, place: api.item(*place), places)
    ):
        expect(found == held[key][sort_key], key, sort_key, "is", found)
    return sum(map(len, held.values())) + len(places)


def table_of(title, figures):
    shown = {
        name: f"{value:,}" if isinstance(value, int) else value for name, value in figures.items()
    }
    left, right = max(map(len, shown)), max(map(len, shown.values()))
    lines = [f"| {name:{left}} | {value:>{right}} |" for name, value in shown.items()]
    return "\n".join([f"\n{title}", f"|{'-' * (left + 2)}|{'-' * (right + 1)}:|", *lines])


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            for title, check in CHECKS.items():
                if title not in (sys.argv[2:] or CHECKS):
                    continue
                began = time.monotonic()
                figures = check(binary, folder)
                figures["seconds"] = round(time.monotonic() - began)
                show(table_of(f"{title}, seed {SEED}", figures))
        except Wrong as wrong:
            for log in sorted(folder.glob("edition-*.log")):
                show(f"-- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
            show(f"\nseed {SEED}: {wrong}")
            return 1
    return 0


CHECKS = {"adoption": adoption, "rebuild": rebuild}

if __name__ == "__main__":
    sys.exit(main())
