"""Tables of other programs, which checks/adoption.py adopts."""

import dataclasses
import gzip
import hashlib
import json
import pathlib
import random
from collections import defaultdict
from decimal import Decimal

LOG = pathlib.Path(__file__).resolve().parent.parent / "tests/data/audit-log.jsonl.gz"


@dataclasses.dataclass(frozen=True)
class Program:
    """A program with one table: its keys, and its items as `((key, sort key), attributes)`."""

    partition: str
    sort: str
    type: str
    items: callable
    # The shards into which it has divided each key.
    shards: int
    # The numbers of shards that some keys get in turn.
    widths: tuple

    def variables(self):
        """Returns the product's variables for this table."""
        names = {"PARTITION_KEY_NAME": self.partition, "SORT_KEY_NAME": self.sort}
        fixed = {"ADOPT_SHARDS": str(self.shards), "SHARD_PLACEMENT": "modulo-md5"}
        return names | {"SORT_KEY_TYPE": self.type} | (fixed if self.shards > 1 else {})

    def stored_key(self, key, sort, width):
        """Returns the partition key under which an item is stored when its key has this width."""
        if self.shards > 1:
            digest = hashlib.md5(f"{key}_{sort}".encode(), usedforsecurity=False).digest()
            return f"{key}.{int.from_bytes(digest, 'big') % width + 1}"
        if self.type == "N":
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

    def key_of(self, stored):
        """Returns the key of a row of the program."""
        return stored.rpartition(".")[0] if self.shards > 1 else stored

    def row(self, place, attributes):
        """Returns an item as the program stores it."""
        key, sort = place
        stored = self.stored_key(key, sort, self.shards)
        return {self.partition: stored, self.sort: sort} | attributes


def attributes(draw, number):
    # No item is so close to its next unit that the product's attributes would take it.
    known = {"n": number, "text": "é" * (draw.choice([1_250, 2_250]) if number % 50 == 0 else 5)}
    of_all_types = {"raw": b"\0\1", "list": [True, None, Decimal("0.1")]}
    return known | ({"tags": {"a", f"b{number % 7}"}, "of": of_all_types} if number % 3 else {})


def changes(keys, most):
    """Yields changes of the most changed files of the audit log."""
    draw, files = random.Random(keys), defaultdict(set)
    with gzip.open(LOG, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            files[row["path"]].add(f"{row['time']}#{row['commit']}")
    for path in sorted(files, key=lambda path: (-len(files[path]), path))[:keys]:
        for number, sort in enumerate(sorted(files[path])[:most]):
            yield (path, sort), attributes(draw, number)


def measurements(keys, items):
    draw = random.Random(keys)
    for number in range(items):
        at = Decimal(number * 7_919 % 100_003 - 50_000).scaleb(-2)
        yield (f"device {int(keys * draw.random() ** 2)}", at), attributes(draw, number)


WIDTHS = ((2,), (7,), (3, 11), (20,), (5,), (2, 3, 4), (13,), (6,))
PROGRAMS = {
    "strings": Program("path", "time", "S", lambda: changes(750, 4_000), 1, WIDTHS),
    "numbers": Program("device", "at", "N", lambda: measurements(250, 53_751), 1, WIDTHS),
    "sharded": Program("path", "time", "S", lambda: changes(20, 200), 10, ((17,), (12, 23))),
}
