"""Uses the Python client that openapi-generator generated as `openapi_client`.

Usage: openapi_generator.py URL
"""

import sys

import openapi_client as generated

KEY = "openapi-generator"
ADD = "application/vnd.dynamodb-write-sharding.add+json"
api = generated.ItemsApi(generated.ApiClient(generated.Configuration(host=sys.argv[1])))
ATTRIBUTES = {
    "number": 1,
    "digits": 12345678901234567890123456789012345678,
    "fraction": 0.1,
    "list": [None],
    "set": {"$string_set": ["a"]},
}


def code_of(request, *arguments, **named):
    """Returns the code of the problem that a request ends in."""
    try:
        raise AssertionError(f"a problem is expected, and not {request(*arguments, **named)}")
    except generated.ApiException as problem:
        return problem.data.code


item = generated.NewItem(partition_key=KEY, sort_key=generated.SortKey("0"), attributes=ATTRIBUTES)
stored = api.store_item_with_http_info(item)
assert stored.data.sort_key.actual_instance == "0", stored
assert code_of(api.store_item, item, if_none_match="*") == "already_exists"
assert api.get_item(KEY, "0").attributes == ATTRIBUTES

replacement = generated.Replacement(attributes={"number": 2, "old": True, "set": {"$string_set": ["a"]}})
api.replace_item(KEY, "0", replacement, if_match=stored.headers["etag"])
assert code_of(api.replace_item, KEY, "0", replacement, if_match=stored.headers["etag"]) == "precondition_failed"

patch = generated.UpdateItemRequest(generated.MergePatch(attributes={"old": None, "new": [1.5]}))
patched = api.update_item(KEY, "0", patch)
assert patched.attributes == {"number": 2, "new": [1.5], "set": {"$string_set": ["a"]}}, patched
one_more = generated.StringSet.from_dict({"$string_set": ["b"]})
additions = {"number": generated.AdditionsAddValue(40), "set": generated.AdditionsAddValue(one_more)}
added = api.update_item(KEY, "0", generated.UpdateItemRequest(generated.Additions(add=additions)), _content_type=ADD)
assert added.attributes["number"] == 42 and added.attributes["set"] == {"$string_set": ["a", "b"]}, added

batch = [generated.NewItem(partition_key=KEY, sort_key=generated.SortKey(str(at)), attributes={}) for at in range(1, 5)]
written = api.store_items(generated.NewItems(items=batch))
assert written.written == 4 and not written.failed, written
found, cursor = [], {}
while cursor is not None:
    page = api.get_items(KEY, limit=2, **cursor).actual_instance
    assert isinstance(page, generated.Page), page
    found += [item.sort_key.actual_instance for item in page.items]
    cursor = {"cursor": page.cursor} if page.cursor else None
assert found == ["0", "1", "2", "3", "4"], found
count = generated.Count(count=5, cursor=None, shards=1, consumed_capacity=0.5)
assert api.get_items(KEY, count=True).actual_instance == count

api.delete_item(KEY, "0")
assert code_of(api.get_item, KEY, "0") == "not_found"
assert generated.ShardsApi(api.api_client).get_shards(KEY).number_of_shards == 1
