"""Adopts a table that another program filled, migrates it while it is in use, and rebuilds lost
metadata and lost pages of the directory: processes, ports and boto3.

Usage: adoption.py LOCAL_BINARY [adoption] [rebuild]

The data is the audit log of tests/data. Every answer of the API is compared with what must stand:
one client owns a sort key, and no other changes it. Where the outcome of a write is unknown, both
are right from then on, and the item is not written again.
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
# What the product stores beside an item.
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
}
SHARD_KEY = re.compile(r"(.+)\.([1-9][0-9]*)", re.S)

START_SECONDS = 30
ANSWER_SECONDS = 40
RUN_SECONDS = 240
# A request that gets no capacity is repeated so long.
PATIENCE = 60

ADOPTED_ITEMS = 3_000
CLIENTS = 3
DRAIN_WAIT = 11
MOST_RUNS = 6
# Of the writes; more of them would mean that hardly anything was checked.
MOST_UNKNOWN = 0.05

FRESH = "#fresh-"

# Items of the keys that grow because they are hot, besides those that are written at the end; and
# what other keys are told to grow to.
HOT_ITEMS = (1_000, 500, 300)
LAST_ITEMS = 20
SET_TO = ((7,), (3, 11), (20,), (2,))


class Wrong(Exception):
    """What is not as it must be."""


def expect(holds, *told):
    if not holds:
        raise Wrong(" ".join(str(part) for part in told))


def show(text):
    print(text, flush=True)


def sample(items):
    """The first changes of the log, as (path, time#commit, attributes)."""
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
            raise Wrong("the local edition did not stop when it was told to")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def boto3(self):
        config = Config(
            retries={"mode": "standard", "total_max_attempts": 20}, max_pool_connections=8
        )
        # It takes any credentials.
        resource = boto3.Session("fake", "fake", region_name="us-east-1").resource(
            "dynamodb", endpoint_url=self.dynamodb, config=config
        )
        return resource.Table(MAIN), resource.Table(METADATA)


class Api:
    """One connection to an edition's API."""

    def __init__(self, edition):
        self.connection = http.client.HTTPConnection(edition.address, timeout=ANSWER_SECONDS)

    def call(self, method, path, body=None, headers=None):
        sent = (
            {"content-type": "application/json"} | (headers or {})
            if body is not None
            else headers or {}
        )
        self.connection.request(method, path, None if body is None else json.dumps(body), sent)
        answer = self.connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None

    def read(self, path, **query):
        """A read, repeated while there is no capacity."""
        end = time.monotonic() + PATIENCE
        while True:
            status, body = self.call("GET", f"{path}?{urllib.parse.urlencode(query)}")
            if status != 503 or time.monotonic() >= end:
                return status, body

    def item(self, key, sort_key):
        status, body = self.read("/item", partition_key=key, sort_key=sort_key, consistent="true")
        if status == 404:
            return None
        expect(status == 200, "GET /item of", key, sort_key, "answers", status, body)
        return body["attributes"]

    def all(self, key, limit=100):
        """Every item of a key by consistent pages, and how many pages they were."""
        found, pages, query = {}, 0, {"partition_key": key, "limit": limit, "consistent": "true"}
        last = ""
        while True:
            status, body = self.read("/items", **query)
            expect(status == 200, "GET /items of", key, "answers", status, body)
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
        expect(status == 200, "the shard-scaler answers", status, body)
        return body


def of_each(edition, work, inputs):
    """The results of `work(api, input)`, some at once."""
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
    """The metadata of keys: the product's own records are left out."""
    return (
        item for item in scanned(metadata) if not item["partition_key"].startswith("_sharding:")
    )


def is_bare(item):
    return item.get(LOGICAL, item["partition_key"]) == item["partition_key"]


def bare_items(table):
    """How many items stand under each bare key."""
    return Counter(item["partition_key"] for item in scanned(table) if is_bare(item))


# Adoption


class Adopted:
    """What another program has stored, and what of it the clients own."""

    def __init__(self):
        self.items = defaultdict(dict)
        for path, sort_key, attributes in sample(ADOPTED_ITEMS):
            self.items[path][sort_key] = attributes
        by_size = sorted(self.items, key=lambda path: (-len(self.items[path]), path))
        # Keys that look like shards of others: with their sort keys, with some of their own, of
        # keys that are shards of shards, of none.
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
        # Where another key's item takes the place of one of this key on some shard.
        self.occupied = set()
        for key in shared:
            of = SHARD_KEY.fullmatch(key)
            self.occupied |= {(of[1], sort_key) for sort_key in shared[key]}
        self.busy = sorted({*by_size[:6], *self.parents, *shared, *by_size[60:90]})
        self.are_busy = frozenset(self.busy)
        self.count = sum(len(items) for items in self.items.values())

    def owner(self, key, sort_key):
        """Half of the items of the busy keys have an owner; nobody touches the rest."""
        drawn = zlib.crc32(f"{SEED} {key} {sort_key}".encode()) % (2 * CLIENTS)
        return drawn if drawn < CLIENTS and key in self.are_busy else None


class Client(threading.Thread):
    """Writes items that nobody else writes, and checks every answer."""

    def __init__(self, number, edition, adopted, stop):
        super().__init__(daemon=True)
        self.number, self.adopted, self.stop = number, adopted, stop
        self.api, self.random = Api(edition), random.Random(SEED * 10 + number)
        # What may stand: one value, or two where an outcome is unknown. None is for nothing.
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
        except Exception as wrong:  # of the connection, or a mistake in this program
            self.wrong = repr(wrong)
        finally:
            # The others, too: one that has ended has nothing more to say.
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
            # It was carried out, and that is not undone.
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
                "which nobody stored there",
            )
        self.done["full reads"] += 1
        self.done["pages"] += pages

    def write(self, kind, key, sort_key):
        self.serial += 1
        stands = self.may[key][sort_key][0]
        attributes = {"change": kind, "write": f"{self.number}-{self.serial}"}
        item = {"partition_key": key, "sort_key": sort_key, "attributes": attributes}
        one = f"/item?{urllib.parse.urlencode({'partition_key': key, 'sort_key': sort_key})}"
        if kind == "post":
            told, after, good = self.api.call("POST", "/items", item), attributes, 201
        elif kind == "put":
            told, after, good = (
                self.api.call("PUT", one, {"attributes": attributes}),
                attributes,
                200,
            )
        elif kind == "delete":
            told, after, good = self.api.call("DELETE", one), None, 204
        else:
            told = self.api.call("POST", "/items", item, {"if-none-match": "*"})
            after, good = (attributes, 201) if stands is None else (stands, 412)
        status, body = told
        code = body["code"] if status >= 400 else None
        if code in ("no_capacity", "contended"):
            self.done["writes given up"] += 1
        elif code == "outcome_unknown":
            self.done["writes with an unknown outcome"] += 1
            if kind != "create" or stands is None:
                self.may[key][sort_key] = [stands, after]
        elif code == "ambiguous_key":
            # It, or its tombstone, would have to stand where another key's item stands. A
            # create-only write reads all of the item's places first.
            right = (key, sort_key) in self.adopted.occupied and (
                kind != "create" or stands is None
            )
            expect(right, kind, key, sort_key, "is refused as ambiguous, and", stands, "stands")
            self.done["409 ambiguous_key"] += 1
        else:
            expect(
                status == good,
                kind,
                key,
                sort_key,
                "answers",
                status,
                body,
                "and must answer",
                good,
                "for",
                stands,
                "stands",
            )
            self.may[key][sort_key] = [after]
            self.done[f"{kind} {status}"] += 1


def ambiguity(edition, adopted, clients):
    """Before anything moves it is known which writes are refused: those whose place on shard 1 is
    another key's."""
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
        stands = client.may[key][sort_key][0]
        item = {"partition_key": key, "sort_key": sort_key, "attributes": {"change": "ambiguous"}}
        one = f"/item?{urllib.parse.urlencode({'partition_key': key, 'sort_key': sort_key})}"
        refused = 409, "ambiguous_key"
        writes = [
            (("POST", "/items", item), {refused}),
            (
                ("POST", "/items", item, {"if-none-match": "*"}),
                {refused if stands is None else (412, "already_exists")},
            ),
            (("PUT", one, {"attributes": item["attributes"]}), {refused}),
            # A deletion that finds nothing needs no tombstone. Not every deletion reads first.
            (("DELETE", one), {refused, (204, None)} if stands is None else {refused}),
        ]
        for write, wanted in writes:
            status, body = api.call(*write)
            told = status, body["code"] if status >= 400 else None
            expect(
                told in wanted,
                *write[:2],
                key,
                sort_key,
                "answers",
                told,
                "and must answer",
                wanted,
                "for",
                stands,
                "stands",
            )
            figures[str(status)] += 1
        client.compare(key, sort_key, api.item(key, sort_key))
        owner = adopted.owner(f"{key}.1", sort_key)
        other = first[sort_key] if owner is None else clients[owner].may[f"{key}.1"][sort_key][0]
        found = api.item(f"{key}.1", sort_key)
        expect(found == other, f"{key}.1", sort_key, "was", other, "and is", found)
    expect(
        min(figures[status] for status in ("409", "412", "204")) > 0,
        "too few places are taken:",
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
        """The keys that are under way, by step; and how many are through. `drain` is "began
        busy_until emptied_at", "-" for none."""

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
        """Kills it once `reached` says so of the steps."""
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
        """To its end; the lines that it says, and the keys that it left."""
        end = time.monotonic() + RUN_SECONDS
        while (status := self.wait(0.2)) is None:
            expect(
                time.monotonic() < end and not stopped.is_set(),
                "it does not end within",
                RUN_SECONDS,
                "seconds",
            )
        told = self.out.read_text(errors="replace")
        left = dict(re.findall(r"^left: (.+?): (.*)$", told, re.M))
        expect(status == (1 if left else 0), "migrate ends with", status, "and says", told)
        return told, left

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def fill(table, adopted):
    """By BatchWriteItem, and some by PutItem."""
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


def look_at_everything(edition, adopted, clients, keys):
    """All keys in full, and every item that was written by itself. How many items were compared."""
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
            "items that nobody owns, not",
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


def look_at_the_table(table, metadata, clients, figures):
    """What boto3 finds: each item under shard keys alone, in the version that is right, and once
    where the key never had a second shard."""
    # A key without metadata has never grown.
    shards = defaultdict(
        lambda: 1,
        {item["partition_key"]: int(item["number_of_shards"]) for item in keys_of(metadata)},
    )
    copies = defaultdict(list)
    for item in scanned(table):
        expect(not is_bare(item), item["partition_key"], "is still a bare key:", item)
        of = SHARD_KEY.fullmatch(item["partition_key"])
        expect(of and of[1] == item[LOGICAL], "an item stands where nobody looks:", item)
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
    for place, standing in copies.items():
        expect(place in may, place, "was stored by nobody:", standing)
        expect(len(standing) == 1 or shards[place[0]] > 1, place, "stands twice:", standing)
    for place, values in may.items():
        # Items that were never written to since have no version.
        newest = max(copies.get(place, ()), key=lambda item: item.get(VERSION, 0), default=None)
        if newest and newest.get(DELETED):
            newest = None
        found = newest and {name: value for name, value in newest.items() if name not in RESERVED}
        expect(found in values, place, "is", found, "and must be", values)
    tombstones = sum(bool(item.get(DELETED)) for standing in copies.values() for item in standing)
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
        told = ambiguity(edition, adopted, clients)
        figures["writes to taken places: 409, 412, 204"] = ", ".join(
            str(told[status]) for status in ("409", "412", "204")
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
            # The rest of the keys has no copies yet.
            missing = missing_without_adoption(binary, folder, edition, adopted, clients[0].unowned)
            migration.start()
            migration.kill_when(lambda _, done: done >= through, stop)
            bare = bare_items(table)
            expect(
                0 < bare.total() < adopted.count,
                "it was killed too early or too late:",
                bare.total(),
                "items stand bare",
            )
            figures["keys that were moved at the first kill, done at the second"] = (
                f"{copied}, {through}"
            )
            figures["items that stood bare at the second kill"] = bare.total()
            figures["items missing after the first without ADOPT_UNSHARDED"] = missing
            left_once = 0
            for _ in range(MOST_RUNS):
                migration.start()
                told, left = migration.finish(stop)
                bare = bare_items(table)
                expect(
                    set(left) == set(bare),
                    "migrate left",
                    sorted(left),
                    "and these stand bare:",
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
                "no item stands under a bare key any more" in told,
                "after",
                migration.runs,
                "runs migrate says",
                told,
            )
            figures["runs of migrate, kills"] = f"{migration.runs}, {migration.kills}"
            figures["keys left to a later run, their places being taken"] = left_once
        finally:
            stop.set()
            migration.stop()
            for client in clients:
                client.join(ANSWER_SECONDS * 2)
            # What a client has met is the reason for whatever else went wrong.
            met = [f"client {client.number}: {client.wrong}" for client in clients if client.wrong]
            expect(not met, "; ".join(met))
        expect(not any(client.is_alive() for client in clients), "a client hangs")
        read_under_load = sum(client.read_items for client in clients)

        keys = {*adopted.items, *(key for client in clients for key in client.may)}
        compared = look_at_everything(edition, adopted, clients, keys)
        look_at_the_table(table, metadata, clients, figures)
        event = Api(edition).scaler(action="migrate")
        expect(
            event["outcome"] == "handled" and event["unsharded_items"] == 0,
            "the event finds",
            event,
        )

    with Edition(binary, folder, *options, SCALING="writer") as edition:
        compared += look_at_everything(edition, adopted, clients, keys)

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
    """What an edition in front of the same tables misses that takes no account of bare keys: else
    nothing of this would be a proof."""
    # Of the busy keys, the clients store items meanwhile.
    keys = adopted.items.keys() - adopted.are_busy
    with Edition(binary, folder, "--endpoint-url", edition.dynamodb) as unaware:
        found = read_all(unaware, keys)
    missing = sum(len(unowned[key].keys() - found[key].keys()) for key in keys)
    expect(
        missing > 0,
        "nothing is missing without ADOPT_UNSHARDED, though items stand under bare keys",
    )
    return missing


# Rebuilding


def post(api, key, items):
    """By batches, until all of them are stored."""
    waiting, end = sorted(items.items()), time.monotonic() + RUN_SECONDS
    while waiting:
        batch, rest = waiting[:500], waiting[500:]
        body = [
            {"partition_key": key, "sort_key": sort_key, "attributes": attributes}
            for sort_key, attributes in batch
        ]
        status, told = api.call("POST", "/items/batch", {"items": body})
        expect(status in (200, 207), "a batch of", key, "answers", status, told)
        wrong = [
            failed
            for failed in told["failed"]
            if failed["code"] not in ("no_capacity", "outcome_unknown")
        ]
        expect(
            not wrong and time.monotonic() < end,
            "items of",
            key,
            "are not stored:",
            told["failed"][:3],
        )
        # A plain POST may be repeated.
        waiting = [batch[failed["index"]] for failed in told["failed"]] + rest


def widths(metadata):
    return {
        item["partition_key"]: (
            item["number_of_shards"],
            item.get("read_shards", item["number_of_shards"]),
        )
        for item in keys_of(metadata)
    }


def settled_width(metadata, key):
    """The key's width once no change of it is under way."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        item = metadata.get_item(Key={"partition_key": key}, ConsistentRead=True).get("Item", {})
        if "closing" not in item:
            return item.get("number_of_shards", 1)
        time.sleep(0.05)
    raise Wrong(key, "does not stop growing")


def post_until_calm(api, metadata, key, items):
    """Also the last width has items: one that nothing was written under cannot be found again."""
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


def grow_as_told(api, key, items, shards):
    """Stores a part of the items under each width."""
    ordered, parts = sorted(items.items()), len(shards) + 1
    for number in range(parts):
        if number:
            told = api.scaler(action="set", partition_key=key, number_of_shards=shards[number - 1])
            expect(
                told["outcome"] == "scaled", "set", key, "to", shards[number - 1], "answers", told
            )
        post(
            api,
            key,
            dict(ordered[number * len(ordered) // parts : (number + 1) * len(ordered) // parts]),
        )
    return items


def grow_by_heat(api, metadata, key, items, at_once):
    """Stores so many items at once, then some more by few; what it holds then."""
    ordered = sorted(items.items())
    first, rest = dict(ordered[:at_once]), dict(ordered[at_once:])
    post(api, key, first)
    return first | {
        sort_key: rest[sort_key] for sort_key in post_until_calm(api, metadata, key, rest)
    }


def rebuilt(binary, folder, edition, keys):
    """Runs `admin rebuild`; how many keys were whole, lost, and missed items, how many entries were
    behind, and what it says."""
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
        r"(\d+) items; of the keys with several shards, (\d+) were whole, "
        r"(\d+) were lost or damaged, (\d+) missed items\n"
        r"(\d+) entries of the directory were behind the metadata, (\d+) keys had nothing else\n",
        done.stdout,
    )
    expect(
        done.returncode == 0 and numbers,
        "rebuild ends with",
        done.returncode,
        "and says",
        done.stdout,
        done.stderr,
    )
    # An item that was replaced after its key had grown stands at two places.
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
    """The page of a key serves its readers and writers although the key's item is lost or damaged;
    what needs the item is refused."""
    api = Api(edition)
    found = api.all(key)[0]
    expect(found == whole, "by its page", key, "has", len(found), "items of", len(whole))
    sort_key = min(whole)
    one = f"/item?{urllib.parse.urlencode({'partition_key': key, 'sort_key': sort_key})}"
    status, body = api.call("PUT", one, {"attributes": whole[sort_key]})
    expect(status == 200, "PUT", key, "answers", status, body)
    status, body = api.read("/shards", partition_key=key)
    expect(
        (status, body.get("code")) == (500, code),
        "GET /shards of",
        key,
        "answers",
        status,
        body,
        "and must answer 500",
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
    hot, told = by_size[: len(HOT_ITEMS)], by_size[len(HOT_ITEMS) : len(HOT_ITEMS) + len(SET_TO)]
    plain = by_size[len(hot) + len(told) + 20 :: 20]
    # The schedule would write entries of a lost page anew, and rebuild could not count them.
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
    # No writer grows a key of its own accord, and no alarm comes.
    with Edition(binary, folder, *options, SCALING="alarm") as edition:
        work = [*zip(told, SET_TO), *((key, ()) for key in plain)]
        held |= zip(
            [*told, *plain],
            of_each(
                edition, lambda api, one: grow_as_told(api, one[0], rows[one[0]], one[1]), work
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
        {*hot, *told} == {*several} == saved.keys(),
        "these have several shards:",
        several,
        "and these have metadata:",
        sorted(saved),
    )
    expect(
        [saved[key][0] for key in told] == [shards[-1] for shards in SET_TO],
        "keys that were told to grow:",
        [saved[key] for key in told],
    )
    figures["items"], figures["keys"] = sum(map(len, held.values())), len(held)
    figures["shards of the hot keys"] = ", ".join(str(saved[key][0]) for key in hot)
    figures["shards of the keys that were told"] = ", ".join(str(saved[key][0]) for key in told)

    with Edition(binary, folder, *options, **variables) as edition:
        table, metadata = edition.boto3()
        expect(read_all(edition, held) == held, "a full read before anything is lost differs")
        saved = widths(metadata)

        # Without pages, the item of each key is read.
        figures["pages of the directory"] = delete_pages(metadata)
        compared = same_again(edition, metadata, held, saved)
        counts, behind, said = rebuilt(binary, folder, edition, held)
        show(f"\nall pages lost: {said}")
        expect(
            (counts, behind) == ((len(several), 0, 0), len(several)),
            "rebuild counts",
            counts,
            behind,
        )
        compared += same_again(edition, metadata, held, saved)
        for key in several:
            metadata.delete_item(Key={"partition_key": key})

    # A new process, which has seen none of it.
    with Edition(binary, folder, *options, **variables) as edition:
        table, metadata = edition.boto3()
        for key in several:
            directory_serves(edition, key, held[key], "metadata_lost")
        counts, _, said = rebuilt(binary, folder, edition, held)
        show(f"all items lost: {said}")
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
        # The loss is seen by an item on the first of the further shards. A key that has none there
        # has few.
        unseen = [
            key
            for key in several
            if not table.query(KeyConditionExpression=Key("partition_key").eq(f"{key}.2"), Limit=1)[
                "Items"
            ]
        ]
        expect(not unseen, "nothing stands on shard 2 of", unseen)
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
                    "answers",
                    status,
                    str(body)[:300],
                )
                refused += 1
        figures["requests to lost keys, each answered 500 metadata_lost"] = refused

        counts, _, said = rebuilt(binary, folder, edition, held)
        show(f"all items and pages lost: {said}")
        expect(
            counts == (0, len(several), 0),
            "rebuild counts",
            counts,
            "and",
            len(several),
            "keys were lost",
        )
        compared += same_again(edition, metadata, held, saved)

        damaged, anew = hot[0], told[0]
        metadata.put_item(Item={"partition_key": damaged, "number_of_shards": "many"})
        metadata.put_item(
            Item={
                "partition_key": anew,
                "number_of_shards": 1,
                "last_updated": 1,
                "shard_history": {"1:1"},
                "generation": 1,
            }
        )
        directory_serves(edition, damaged, held[damaged], "internal_error")
        directory_serves(edition, anew, held[anew], "metadata_lost")
        counts, _, said = rebuilt(binary, folder, edition, held)
        show(f"one damaged, one registered anew: {said}")
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
    """Widths, full reads, and of the keys with several shards every item by itself."""
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
