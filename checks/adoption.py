"""Adopts tables that boto3 filled: reads and changes them through the API, grows, rebuilds and
settles keys under load. Compares what the API returns, and all rows, with what must be there.

Usage: adoption.py LOCAL_BINARY [PROGRAM]...
"""

import contextlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zlib
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

from adopting_edition import VARIABLES, Api, Edition, await_that, expect, rows_of
from other_programs import PROGRAMS
from units import compare, metered, size_of

SEED = int(os.environ.get("SEED", "20140709"))
MAIN, METADATA, SCRATCH = "items", "items-metadata", "scratch"
OPTIONS = "--partitions 16 --alarm-period 3600 --drain-period 1 --drain-wait 5".split()
CLIENTS, LOAD_SECONDS = 3, 5
MERGE, ADD = "application/merge-patch+json", "application/vnd.dynamodb-write-sharding.add+json"
KINDS = ("post", "put", "delete", "create", "merge", "add", "get")


class Model:
    """What a table must have."""

    def __init__(self, program):
        self.program, self.original = program, dict(program.items())
        # Items that the API has changed, and those that it may have changed.
        self.items, self.written, self.unknown = dict(self.original), set(), set()
        self.done, self.compared = Counter(), 0
        sizes = Counter(key for key, _ in self.items)
        self.keys = sorted(sizes, key=lambda key: (-sizes[key], key))
        self.grown = dict(zip(self.keys[::3], program.widths))
        self.busy = [*self.grown, *self.keys[1::3][: len(self.grown)]]

    def request(self, kind, place, mark):
        """Returns a request, its headers, the right status, and the item afterwards."""
        path = f"/item?{urlencode(dict(zip(('partition_key', 'sort_key'), place)))}"
        before, new = self.items.get(place), {"by": mark, "n": 1}
        item = {"partition_key": place[0], "sort_key": place[1], "attributes": new}
        found = 404 if before is None else 200
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
            case "merge":
                kept = {name: before[name] for name in (before or {}) if name != "n"}
                after = before and kept | {"by": mark}
                patch = {"attributes": {"by": mark, "n": None}}
                return ("PATCH", path, patch), {"content_type": MERGE}, found, after

    def send(self, api, kind, place, mark=None):
        """Sends a request, and compares the response with the state before."""
        before = self.items.get(place)
        request, headers, good, after = self.request(kind, place, mark)
        status, body = api.call(*request, **headers)
        self.done[f"{kind} {body.get('code', status)}"] += 1
        if status == 503:
            if body["code"] == "outcome_unknown":
                self.unknown.add(place)
            return
        expect(status == good, request, "returns", status, body, "and must return", good, before)
        if kind == "get":
            expect(body.get("attributes") == before, place, "is", body, "and must be", before)
            self.compared += 1
        elif after is not before:
            self.written.add(place)
            self.items |= {place: after}
        if after is None:
            self.items.pop(place, None)

    @contextlib.contextmanager
    def load(self, edition):
        """Lets clients change items of the busy keys. Each item has one client or none."""
        stop, of = threading.Event(), defaultdict(list)
        for place in self.original:
            if place[0] in self.busy:
                drawn = zlib.crc32(f"{SEED} {place}".encode()) % (2 * CLIENTS)
                of[drawn if drawn < CLIENTS else None].append(place)

        def write(number):
            api, draw, own = Api(edition), random.Random(SEED * 10 + number), of[number]
            while not stop.is_set():
                new, key = time.time_ns() * CLIENTS + number, draw.choice(self.busy)
                if draw.random() < 0.15:
                    own.append((key, new if self.program.type == "N" else str(new)))
                if draw.random() < 0.005:
                    self.compare(key, api.all(key), own + of[None])
                if (place := draw.choice(own)) not in self.unknown:
                    self.send(api, draw.choice(KINDS), place, new)

        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(write, number) for number in range(CLIENTS)]
            try:
                yield
            finally:
                stop.set()
                # The failure of a client may be the cause of another one.
                for client in clients:
                    client.result()

    def compare(self, key, found, places):
        """Compares what a key's pages have at these places."""
        for place in places:
            if place[0] == key and place not in self.unknown:
                one, right = found.get(place[1]), self.items.get(place)
                expect(one == right, "in its page,", place, "is", one, "and must be", right)
                self.compared += 1

    def read(self, edition):
        """Compares all pages of all keys, and some single items."""
        api, sorts = Api(edition), defaultdict(set)
        for key, sort in self.items:
            sorts[key].add(sort)
        for key in self.keys:
            found = api.all(key)
            self.compare(key, found, ((key, sort) for sort in found.keys() | sorts[key]))
        for place in random.Random(SEED).sample(sorted(self.original), 1_000):
            if place not in self.unknown:
                self.send(api, "get", place)

    def check_rows(self, table, widths):
        """Compares all rows. Returns how many bytes the product has added to one, by its place."""
        program, left, added = self.program, dict(self.items), defaultdict(set)
        for row in rows_of(table):
            stored, sort = row.pop(program.partition), row.pop(program.sort)
            own = {name: row.pop(name) for name in [*row] if name.startswith("_sh:")}
            key = own.get("_sh:k") or program.key_of(stored)
            if (place := (key, sort)) in self.unknown:
                continue
            expect(place in left, "a row too many:", stored, sort, row, own)
            expect(row == left.pop(place), "a wrong row:", stored, sort, row, own)
            right = program.stored_key(key, sort, widths.get(key, program.shards))
            expect(stored == right, stored, sort, "must be under", right)
            was_written = place in self.written
            was_moved = stored != program.stored_key(key, sort, program.shards)
            has = {"_sh:v": was_moved or was_written, "_sh:w": was_moved}
            has["_sh:k"] = has["_sh:v"] and stored != key
            may_have = {"_sh:i": was_written, "_sh:l": was_written}
            may_have["_sh:w"] = was_written and key in widths
            needed, optional = ({n for n, it in of.items() if it} for of in (has, may_have))
            expect(needed <= own.keys() <= needed | optional, stored, sort, "has", own)
            if own:
                where = "under the key itself" if stored == key else "elsewhere, besides the key"
                what = f"{where}{', create-only' if '_sh:i' in own else ''}"
                size = sum(len(name) + size_of(value) for name, value in own.items())
                suffix = len(stored) - len(key)
                added[what].add(size + suffix - len(own.get("_sh:k", "").encode()))
        left = left.keys() - self.unknown
        expect(not left, len(left), "items have no row:", sorted(left)[:3])
        return {what: f"{min(sizes)} to {max(sizes)}" for what, sizes in sorted(added.items())}


def fill(table, model):
    """Makes the table as another one, and stores the items."""
    client, program = table.meta.client, model.program
    like = client.describe_table(TableName=SCRATCH)["Table"]
    schema = {name: like[name] for name in ("KeySchema", "AttributeDefinitions")}
    client.create_table(TableName=table.name, BillingMode="PAY_PER_REQUEST", **schema)
    with table.batch_writer() as batch:
        for place in random.Random(SEED).sample(list(model.items), len(model.items)):
            batch.put_item(Item=program.row(place, model.items[place]))


def keys_of(metadata, name):
    """Returns an attribute of the metadata of each key."""
    [key] = [schema["AttributeName"] for schema in metadata.key_schema]
    rows = {row[key]: int(row.get(name, 0)) for row in rows_of(metadata)}
    return {key: value for key, value in rows.items() if not key.startswith("_sharding:")}


def adopt(binary, folder, name):
    program, began = PROGRAMS[name], time.monotonic()
    model, variables = Model(program), program.variables()
    other = variables | {"TABLE_NAME": SCRATCH, "METADATA_TABLE_NAME": f"{SCRATCH}-metadata"}
    data = (*OPTIONS, "--data-dir", folder / name)

    def edition(variables, *options):
        log = folder / f"{name}-{time.monotonic_ns()}.log"
        return Edition(binary, log, *(options or data), **variables)

    def say(*words):
        print(f"{name:8}{time.monotonic() - began:4.0f} s ", *words, flush=True)

    def arm(api):
        """Arms all keys. Until then, the product writes none that another program may write."""
        if program.shards == 1:
            item = {"partition_key": "new", "sort_key": 1 if program.type == "N" else "1"}
            status, body = api.call("POST", "/items", item | {"attributes": {}})
            expect(body.get("code") == "not_armed", "POST", item, "returns", status, body)
        counts_from = api.scaler("handled", action="arm", pattern="*")["counts_from"]
        await_that(lambda: time.time() > counts_from, "the keys are armed")

    # This edition serves the table of another program, and does not use it.
    with edition(other) as server:
        fill(server.table(MAIN), model)
    say(f"boto3 stored {len(model.items):,} items of {len(model.keys)} keys")

    with edition(variables) as product:
        table, api = product.table(MAIN), Api(product)
        model.read(product)
        added = model.check_rows(table, {})
        expect(not added, "reading has changed rows:", added)
        say(f"read {model.compared:,} items; every row is as boto3 stored it")
        arm(api)
        if program.shards == 1:
            with metered(product.listens("DynamoDB"), MAIN) as (port, taken):
                over = ("--endpoint-url", f"http://127.0.0.1:{port}")
                with edition(variables, *over) as counted:
                    large = [place for place in model.items if len(model.items[place]["text"]) > 5]
                    draw, units = random.Random(SEED), defaultdict(set)
                    places = draw.sample(large, 30) + draw.sample(list(model.items), 30)
                    places = [place for place in places if place[0] not in model.grown]
                    tables = table, product.table(SCRATCH)
                    for kind, own, boto3s in compare(model, Api(counted), taken, tables, places):
                        expect(own == [boto3s], kind, "takes the units", own, "and boto3's", boto3s)
                        units[kind].add(boto3s)
            say("one request for one, with the units of boto3's:", dict(units))
        with model.load(product):
            time.sleep(LOAD_SECONDS)
        model.read(product)
        added = model.check_rows(table, {})
        say(f"changed items of keys that never grew; bytes added to a row: {added}")

        def grow(key):
            for width in model.grown[key]:
                event = {"action": "set", "partition_key": key, "number_of_shards": width}
                Api(product).scaler("scaled", **event)

        with model.load(product), ThreadPoolExecutor() as pool:
            list(pool.map(grow, model.grown))
            # A rebuild finds a number of shards only if items were stored under it.
            time.sleep(LOAD_SECONDS)
        model.read(product)
        say("grown under load, to shards:", *("-".join(map(str, each)) for each in program.widths))

    with edition(other) as server:
        metadata = server.table(METADATA)
        before = keys_of(metadata, "number_of_shards")
        for row in rows_of(metadata):
            metadata.delete_item(Key={program.partition: row[program.partition]})
        command = [binary.with_name("admin"), "rebuild", "--endpoint-url"]
        command.append(f"http://{server.listens('DynamoDB')}")
        environment = os.environ | VARIABLES | variables
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        expect(done.returncode == 0, "rebuild prints", done.stdout, done.stderr)
        after = keys_of(metadata, "number_of_shards")
        expect(after == before, "the numbers of shards were and are", before, after)
        say("lost all metadata; rebuild:", "; ".join(done.stdout.splitlines()))

    with edition(variables) as product:
        table, metadata, api = product.table(MAIN), product.table(METADATA), Api(product)
        model.read(product)
        arm(api)

        def all_are(name, value):
            return {*keys_of(metadata, name).values()} == {value}

        with model.load(product):
            for key in model.grown:
                api.scaler("begun", action="settle", partition_key=key)
            await_that(lambda: all_are("settled", True), "all keys are settled")
        say("settled under load")
        await_that(lambda: all_are("unpurged", False), "no key has tombstones")
        model.read(product)
        added = model.check_rows(table, after)
        say(f"one row for each of {len(model.items):,} items; bytes added to a row: {added}")
    say("requests:", dict(sorted(model.done.items())))
    expect(len(model.unknown) < 50, "too many unknown outcomes:", len(model.unknown))
    return model


def main():
    binary, began, failed = pathlib.Path(sys.argv[1]).resolve(), time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        names = sys.argv[2:] or PROGRAMS
        runs = {name: pool.submit(adopt, binary, pathlib.Path(folder), name) for name in names}
        for name, run in runs.items():
            if error := run.exception():
                failed += 1
                print(f"WRONG {name}, seed {SEED}:", *traceback.format_exception(error)[-4:])
                for log in sorted(pathlib.Path(folder).glob(f"{name}-*.log")):
                    print(f"-- {log.name}\n{log.read_text(errors='replace')[-2000:]}")
    models = [run.result() for run in runs.values() if not run.exception()]
    compared = sum(model.compared for model in models)
    took = time.monotonic() - began
    print(f"\n{compared:,} items compared, seed {SEED}, {took:.0f} s; {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
