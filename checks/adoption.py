"""Adopts tables that boto3 filled, with sort keys that are strings and numbers: reads them, arms,
grows and settles keys while it changes items, and compares all items and rows with what must be
there.

Usage: adoption.py LOCAL_BINARY
"""

import gzip
import hashlib
import itertools
import json
import os
import pathlib
import random
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from urllib.parse import urlencode

from expect import await_that, expect, output
from local_edition import Api, Edition, rows_of

SEED = int(os.environ.get("SEED", "20140709"))
LOG = pathlib.Path(__file__).resolve().parent.parent / "tests/data/audit-log.jsonl.gz"
MAIN, SCRATCH = "items", "scratch"
OPTIONS = "--partitions 16 --alarm-period 3600 --drain-period 1 --drain-wait 5".split()
# No writer and no alarm grows a key.
VARIABLES = {"SCALING": "alarm", "DRAIN_SHARE_PERCENT": "100"}
# The numbers of shards that some keys get in turn.
WIDTHS = ((2,), (7,), (3, 11), (20,), (2, 3, 4), (13,))
ADD = "application/vnd.dynamodb-write-sharding.add+json"
KINDS = ("post", "put", "delete", "create", "add", "get")


def attributes(draw, number):
    known = {"n": number, "text": "é" * (draw.choice([1_250, 2_250]) if number % 50 == 0 else 5)}
    of_all_types = {"raw": b"\0\1", "list": [True, None, Decimal("0.1")]}
    return known | ({"tags": {"a", f"b{number % 7}"}, "of": of_all_types} if number % 3 else {})


def changes(draw):
    """Yields the changes of the 250 most changed files of the audit log."""
    files = defaultdict(set)
    with gzip.open(LOG, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            files[row["path"]].add(f"{row['time']}#{row['commit']}")
    for path in sorted(files, key=lambda path: (-len(files[path]), path))[:250]:
        for number, sort in enumerate(sorted(files[path])[:500]):
            yield path, sort, attributes(draw, number)


def measurements(draw):
    for number in range(10_000):
        at = Decimal(number * 7_919 % 100_003 - 50_000).scaleb(-2)
        yield f"device {int(250 * draw.random() ** 2)}", at, attributes(draw, number)


# The names and type of the keys, and the items.
PROGRAMS = {"strings": ("path", "time", "S", changes), "numbers": ("device", "at", "N", measurements)}


def stored_key(key, sort, width):
    """Returns the partition key under which an item is stored when its key has this width."""
    if not isinstance(sort, str):
        sign, digits, exponent = Decimal(sort).normalize().as_tuple()
        sort = f"{'-' * sign}{''.join(map(str, digits))}e{exponent}"
    text = len(key.encode()).to_bytes(8, "big") + key.encode() + sort.encode()
    # A jump consistent hash.
    drawn, bucket, following = int.from_bytes(hashlib.sha256(text).digest()[:8], "big"), 0, 0
    while following < width:
        bucket = following
        drawn = (drawn * 2862933555777941757 + 1) % 2**64
        following = int((bucket + 1) * ((1 << 31) / ((drawn >> 33) + 1)))
    return f"{key}\x1fs{bucket + 1}" if bucket else key


class Model:
    """What a table of another program must have."""

    def __init__(self, partition, sort, kind, items):
        self.names, self.draw = (partition, sort), random.Random(SEED)
        self.variables = {"PARTITION_KEY_NAME": partition, "SORT_KEY_NAME": sort, "SORT_KEY_TYPE": kind}
        self.items, self.written, self.done = defaultdict(dict), set(), Counter()
        for key, at, of_it in items(self.draw):
            self.items[key][at] = of_it
        keys = sorted(self.items, key=lambda key: (-len(self.items[key]), key))
        self.grown = dict(zip(keys[::3], WIDTHS))
        self.busy = [*self.grown, *keys[1::3][: len(self.grown)]]
        # Sort keys that no item has yet.
        self.new = ((1_000_000 + number if kind == "N" else f"~{number}") for number in itertools.count())

    def places(self):
        return [(key, sort) for key, of_it in self.items.items() for sort in of_it]

    def row(self, key, sort):
        return dict(zip(self.names, (key, sort))) | self.items[key][sort]

    def request(self, kind, place, before):
        """Returns a request, its headers, the right status, and the item afterwards."""
        path = f"/item?{urlencode(dict(zip(('partition_key', 'sort_key'), place)))}"
        new, found = {"by": "the product", "n": 1}, 404 if before is None else 200
        item = {"partition_key": place[0], "sort_key": place[1], "attributes": new}
        match kind:
            case "get":
                return ("GET", f"{path}&consistent=true"), {}, found, before
            case "post":
                return ("POST", "/items", item), {}, 201, new
            case "put":
                return ("PUT", path, {"attributes": new}), {}, 200, new
            case "delete":
                return ("DELETE", path), {}, 204, None
            case "create":
                result = (201, new) if before is None else (412, before)
                return ("POST", "/items", item), {"if_none_match": "*"}, *result
            case "add":
                after = before and before | {"count": before.get("count", 0) + 1}
                return ("PATCH", path, {"add": {"count": 1}}), {"content_type": ADD}, found, after

    def send(self, api, kind, place):
        """Sends a request, and compares the response with the item before."""
        (key, sort), before = place, self.items[place[0]].get(place[1])
        request, headers, good, after = self.request(kind, place, before)
        status, body = api.call(*request, **headers)
        expect(status == good, request, "returns", status, body, "and must return", good, before)
        self.done[f"{kind} {status}"] += 1
        if kind == "get":
            expect(body.get("attributes") == before, place, "is", body, "and must be", before)
        elif after is None:
            self.items[key].pop(sort, None)
        elif after is not before:
            self.items[key][sort] = after
            self.written.add(place)

    def change_until(self, done, edition):
        """Changes items of the busy keys, of which some have never grown."""
        api, at_least = Api(edition), time.monotonic() + 2
        sorts = {key: [*self.items[key]] for key in self.busy}
        while not done() or time.monotonic() < at_least:
            key = self.draw.choice(self.busy)
            if self.draw.random() < 0.15:
                sorts[key].append(next(self.new))
            self.send(api, self.draw.choice(KINDS), (key, self.draw.choice(sorts[key])))

    def read(self, edition):
        """Compares all pages of all keys, and some single items."""
        api = Api(edition)
        for key, right in self.items.items():
            found = api.all(key)
            expect(found.keys() == right.keys(), key, "has other sort keys:", found.keys() ^ right.keys())
            for sort, one in found.items():
                expect(one == right[sort], key, sort, "is", one, "and must be", right[sort])
        for place in self.draw.sample(self.places(), 1_000):
            self.send(api, "get", place)

    def check_rows(self, table, widths=None):
        """Compares all rows. One that the product has neither written nor moved is as boto3 stored
        it. No item has two rows, and each row is under the shard of the formula."""
        left = {*self.places()}
        for row in rows_of(table):
            stored, sort = (row.pop(name) for name in self.names)
            own = {name: row.pop(name) for name in [*row] if name.startswith("_sh:")}
            key = stored.partition("\x1f")[0]
            place = (key, sort)
            expect(place in left, "a row too many:", stored, sort, row, own)
            left.remove(place)
            expect(row == self.items[key][sort], "a wrong row:", stored, sort, row, own)
            right = stored_key(key, sort, (widths or {}).get(key, 1))
            expect(stored == right, stored, sort, "must be under", right)
            changed = place in self.written or stored != key
            expect(bool(own) == changed, stored, sort, "has", own)
        expect(not left, len(left), "items have no row:", [*left][:3])


def fill(table, model):
    """Makes the table as another one, and stores the items."""
    client = table.meta.client
    like = client.describe_table(TableName=SCRATCH)["Table"]
    schema = {name: like[name] for name in ("KeySchema", "AttributeDefinitions")}
    client.create_table(TableName=table.name, BillingMode="PAY_PER_REQUEST", **schema)
    with table.batch_writer() as batch:
        for place in model.places():
            batch.put_item(Item=model.row(*place))


def go_around(model, product, binary):
    """Stores a row where only the product does. Returns what a rebuild says of the table."""
    table, key = product.table(MAIN), [*model.grown][1]
    place = dict(zip(model.names, (f"{key}\x1fs2", next(model.new))))
    table.put_item(Item=place)
    command = [binary.with_name("admin"), "rebuild", "--endpoint-url", f"http://{product.dynamodb}"]
    printed = output(*command, env=os.environ | VARIABLES | model.variables)
    known = f"metadata of keys with several shards: {len(model.grown)} complete, 0 lost"
    right = f"{len(model.places()) + 1} items; {known}"
    expect(printed.startswith(right), "rebuild prints", printed, "and not", right)
    expect("\n1 items have a stored key that is not a shard key" in printed, "rebuild prints", printed)
    table.delete_item(Key=place)


def adopt(binary, folder, name):
    began, model = time.monotonic(), Model(*PROGRAMS[name])
    logs = (folder / f"{name}-{number}.log" for number in itertools.count())

    def edition(*options, **variables):
        return Edition(binary, next(logs), *options, **VARIABLES | model.variables | variables)

    def say(*words):
        print(f"{name:8}{time.monotonic() - began:4.0f} s ", *words, flush=True)

    # This edition serves the table of another program, and does not use it.
    data = (*OPTIONS, "--data-dir", folder / name)
    with edition(*data, TABLE_NAME=SCRATCH, METADATA_TABLE_NAME=f"{SCRATCH}-metadata") as server:
        fill(server.table(MAIN), model)
    say(f"boto3 stored {len(model.places()):,} items of {len(model.items):,} keys")

    with edition(*data) as product, ThreadPoolExecutor() as pool:
        table, metadata, api = product.table(MAIN), product.table(f"{MAIN}-metadata"), Api(product)
        model.read(product)
        model.check_rows(table)
        say("every item was read, and every row is as boto3 stored it")

        # Until keys are armed, the product writes none that another program may write.
        item = {"partition_key": "new", "sort_key": next(model.new), "attributes": {}}
        status, body = api.call("POST", "/items", item)
        expect(body.get("code") == "not_armed", "POST", item, "returns", status, body)
        counts_from = api.scaler("handled", action="arm", pattern="*")["counts_from"]
        await_that(lambda: time.time() > counts_from, "the keys are armed")

        def grow(key):
            for width in model.grown[key]:
                Api(product).grow(key, width)

        growths = [pool.submit(grow, key) for key in model.grown]
        model.change_until(lambda: all(each.done() for each in growths), product)
        for each in growths:
            each.result()
        model.read(product)
        say("grown while items change, to shards:", *("-".join(map(str, widths)) for widths in model.grown.values()))

        def all_are(name, value):
            return {row.get(name, False) for row in rows_of(metadata) if row[model.names[0]] in model.grown} == {value}

        for key in model.grown:
            api.scaler("begun", action="settle", partition_key=key)
        settled = pool.submit(await_that, lambda: all_are("settled", True), "all keys are settled")
        model.change_until(settled.done, product)
        settled.result()
        say("settled while items change")
        await_that(lambda: all_are("unpurged", 0), "no key has tombstones")
        model.read(product)
        model.check_rows(table, {key: widths[-1] for key, widths in model.grown.items()})
        go_around(model, product, binary)
        say(f"one row for each of {len(model.places()):,} items; a row of another program is counted")
    say("requests:", dict(sorted(model.done.items())))


def main():
    binary, began, failed = pathlib.Path(sys.argv[1]).resolve(), time.monotonic(), 0
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor() as pool:
        folder = pathlib.Path(scratch)
        runs = {name: pool.submit(adopt, binary, folder, name) for name in PROGRAMS}
        for name, run in runs.items():
            if error := run.exception():
                failed += 1
                print(f"WRONG {name}, seed {SEED}:", *traceback.format_exception(error)[-4:])
                for log in sorted(folder.glob(f"{name}*.log")):
                    print(f"-- {log.name}\n{log.read_text(errors='replace')[-2000:]}")
    print(f"\nseed {SEED}, {time.monotonic() - began:.0f} s; {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
