"""Uses the client that openapi-python-client generated as `items_client`.

Usage: openapi_python_client.py URL
"""

import decimal
import json
import sys

import simplejson
from items_client import Client, models
from items_client.api.items import delete_item, get_item, get_items, replace_item, store_item, store_items, update_item
from items_client.api.shards import get_shards

KEY = "openapi-python-client"
client = Client(sys.argv[1])
KEYS = {"client": client, "partition_key": KEY, "sort_key": "0"}
ATTRIBUTES = {
    "number": 1,
    "digits": 12345678901234567890123456789012345678,
    "fraction": 0.1,
    "map": {"null": None},
    "set": {"$string_set": ["a"]},
}


def expect(value, kind):
    assert isinstance(value, kind), f"{kind.__name__} is expected, and not {value}"
    return value


item = models.NewItem(partition_key=KEY, sort_key="0", attributes=models.Attributes.from_dict(ATTRIBUTES))
stored = store_item.sync_detailed(client=client, body=item)
assert expect(stored.parsed, models.StoredItem).sort_key == "0"
problem = store_item.sync(client=client, body=item, if_none_match="*")
assert expect(problem, models.Problem).code == "already_exists"
read = expect(get_item.sync(**KEYS), models.Item)
assert read.attributes.to_dict() == ATTRIBUTES, read

attributes = models.Attributes.from_dict({"number": 2, "old": True, "set": {"$string_set": ["a"]}})
replacement = models.Replacement(attributes=attributes)
replaced = replace_item.sync_detailed(**KEYS, body=replacement, if_match=stored.headers["etag"])
expect(replaced.parsed, models.StoredItem)
problem = replace_item.sync(**KEYS, body=replacement, if_match=stored.headers["etag"])
assert expect(problem, models.Problem).code == "precondition_failed"

patch = models.MergePatch(attributes=models.MergePatchAttributes.from_dict({"old": None, "new": [1.5]}))
patched = expect(update_item.sync(**KEYS, body=patch), models.Item)
assert patched.attributes.to_dict() == {"number": 2, "new": [1.5], "set": {"$string_set": ["a"]}}, patched
additions = models.AdditionsAdd()
additions["number"] = 40
additions["set"] = models.StringSet(string_set=["b"])
added = expect(update_item.sync(**KEYS, body=models.Additions(add=additions)), models.Item)
assert added.attributes["number"] == 42 and added.attributes["set"] == {"$string_set": ["a", "b"]}, added

# More items than a page has by default, which is no limit of a count.
names = [str(name) for name in range(1000, 1120)]
batch = [models.NewItem(partition_key=KEY, sort_key=name, attributes=models.Attributes()) for name in names]
written = expect(store_items.sync(client=client, body=models.NewItems(items=batch)), models.StoredItems)
assert written.written == len(names) and not written.failed, written
found, cursor = [], {}
while cursor is not None:
    page = expect(get_items.sync(client=client, partition_key=KEY, limit=50, **cursor), models.Page)
    found += [item.sort_key for item in page.items]
    cursor = {"cursor": page.cursor} if page.cursor else None
assert found == ["0", *names], found
counted = expect(get_items.sync(client=client, partition_key=KEY, count=True), models.Count)
assert counted.count == len(found) and counted.cursor is None, counted

exact = {"exact": decimal.Decimal("1234567890.1234567890123456789012345678")}
client.get_httpx_client().put(
    "/item",
    params={"partition_key": KEY, "sort_key": "0"},
    headers={"Content-Type": "application/json"},
    content=simplejson.dumps({"attributes": exact}),
).raise_for_status()
body = get_item.sync_detailed(**KEYS).content
assert json.loads(body, parse_float=decimal.Decimal)["attributes"] == exact, body

assert delete_item.sync_detailed(**KEYS).status_code == 204
assert expect(get_item.sync(**KEYS), models.Problem).code == "not_found"
assert expect(get_shards.sync(client=client, partition_key=KEY), models.Shards).number_of_shards == 1
