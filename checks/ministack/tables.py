"""Additions to ministack for DynamoDB: see README.md beside this file."""

import copy
import json
import threading
import time
from collections import defaultdict

from ministack.services import dynamodb
from ministack.services.cloudformation import provisioners
from stacks import made_up

# The warm throughput of a new on-demand table. [DynamoDB developer guide, warm throughput]
NEW_TABLE = {"ReadUnitsPerSecond": 12_000, "WriteUnitsPerSecond": 4_000, "Status": "ACTIVE"}
# Operations that use the customer's key of an encrypted table.
_ITEM_ACTIONS = ("PutItem", "GetItem", "DeleteItem", "UpdateItem", "Query", "Scan", "BatchGetItem", "BatchWriteItem")
JSON = {"Content-Type": "application/x-amz-json-1.0"}


def _call(function, request):
    status, _, body = function(request)
    response = json.loads(body)
    if status >= 400:
        raise ValueError(response.get("message") or response.get("Message") or str(response))
    return response


def _rejected(kind, message, **more):
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{kind}", "message": message, **more}
    return 400, JSON, json.dumps(body).encode()


class Journal:
    """Every write of every table, for restores to a second of the past."""

    def __init__(self):
        self._lock = threading.Lock()
        self._writes = defaultdict(list)

    def note(self, table, keys, item):
        with self._lock:
            self._writes[table["TableId"]].append((time.time(), keys, copy.deepcopy(item)))

    def at(self, table, when):
        """Returns the items at that time."""
        items = defaultdict(dict)
        with self._lock:
            writes = [write for write in self._writes[table["TableId"]] if write[0] <= when]
        for _, (partition, sort), item in writes:
            items[partition][sort] = copy.deepcopy(item)
        kept = {key: {sort: item for sort, item in of_it.items() if item is not None} for key, of_it in items.items()}
        return defaultdict(dict, {key: of_it for key, of_it in kept.items() if of_it})


JOURNAL = Journal()
# By table, which stored partition keys a partition throttles, as a predicate.
HOT = {}
# Tables of which another caller deletes an item a moment before it is deleted.
RACED = set()


def _throttled(original):
    def write(request):
        table = dynamodb._tables.get(request.get("TableName", "").rsplit("/", 1)[-1]) or {}
        is_hot = HOT.get(table.get("TableName"))
        if not is_hot or not is_hot(request.get("Item", request.get("Key"))[table["pk_name"]]["S"]):
            return original(request)
        reason = {"reason": "TableWriteKeyRangeThroughputExceeded", "resource": table["TableArn"]}
        message = "Throughput exceeds the current capacity of your table or index."
        return _rejected("ThrottlingException", message, throttlingReasons=[reason])

    return write


def _typed(value):
    """Converts numbers and booleans that a template has as text."""
    if isinstance(value, dict):
        return {name: _typed(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_typed(each) for each in value]
    text = value if isinstance(value, str) else ""
    return int(text) if text.isdecimal() else {"true": True, "false": False}.get(text, value)


def _create(logical_id, properties, stack_name):
    """Creates a table by the service's own operations. ministack drops most of its properties."""
    properties = _typed(copy.deepcopy(properties))
    recovery = properties.pop("PointInTimeRecoverySpecification", None)
    insights = {None: properties.pop("ContributorInsightsSpecification", None)} | {
        index["IndexName"]: index.pop("ContributorInsightsSpecification", None)
        for index in properties.get("GlobalSecondaryIndexes", [])
    }
    if encryption := properties.pop("SSESpecification", None):
        properties["SSESpecification"] = {"Enabled": encryption.pop("SSEEnabled"), **encryption}
    # ministack repeats names when a stack is created again, but CloudFormation does not.
    name = made_up(stack_name, logical_id)
    _call(dynamodb._create_table, {**properties, "TableName": name})
    table = dynamodb._tables[name]
    if warm := properties.get("WarmThroughput"):
        table["WarmThroughput"] = {**warm, "Status": "ACTIVE"}
    _call(dynamodb._update_continuous_backups, {"TableName": name, "PointInTimeRecoverySpecification": recovery})
    for index, wanted in insights.items():
        if wanted:
            change = {"ContributorInsightsAction": "ENABLE", "ContributorInsightsMode": wanted["Mode"]}
            place = {"TableName": name, **({"IndexName": index} if index else {})}
            _call(dynamodb._update_contributor_insights, place | change)
    return name, provisioners._ddb_attrs(table)


def _update(name, old, new, *rest):
    """ministack would replace a table that `_create` has named."""
    return provisioners._ddb_update(name, *({**_typed(each), "TableName": name} for each in (old, new)), *rest)


def _delete(name, _):
    if name in dynamodb._tables:
        _call(dynamodb._delete_table, {"TableName": name})


def _restored(original):
    """Restores to the requested second. ministack restores the present."""

    def restore(request):
        source = dynamodb._tables[request["SourceTableName"]]
        described = _call(dynamodb._describe_continuous_backups, {"TableName": source["TableName"]})
        recovery = described["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]
        if recovery["PointInTimeRecoveryStatus"] != "ENABLED":
            return _rejected("PointInTimeRecoveryUnavailableException", f"not enabled for {source['TableName']}")
        when = time.time() if request.get("UseLatestRestorableTime") else float(request["RestoreDateTime"])
        response = original(request)
        if response[0] == 200:
            restored = dynamodb._tables[request["TargetTableName"]]
            # Properties that a restore drops. [DynamoDB developer guide, point-in-time recovery]
            restored |= {
                "items": JOURNAL.at(source, when),
                "StreamSpecification": None,
                "DeletionProtectionEnabled": False,
            }
            dynamodb._ttl_settings.pop(restored["TableName"], None)
            dynamodb._pitr_settings.pop(restored["TableName"], None)
            dynamodb._items_replaced(restored)
            for partition, of_it in restored["items"].items():
                for sort, item in of_it.items():
                    JOURNAL.note(restored, (partition, sort), item)
        return response

    return restore


def _warmed(original):
    def update(request):
        response = original(request)
        if response[0] == 200:
            table = dynamodb._tables[request["TableName"]]
            indexes = {each["IndexName"]: each for each in table.get("GlobalSecondaryIndexes") or []}
            changes = [each.get("Update") or {} for each in request.get("GlobalSecondaryIndexUpdates") or []]
            for place, change in [(table, request), *((indexes.get(each.get("IndexName")), each) for each in changes)]:
                if warm := change.get("WarmThroughput"):
                    place["WarmThroughput"] = {**NEW_TABLE, **place.get("WarmThroughput", {}), **warm}
        return response

    return update


def _described(original):
    def describe(name):
        description, table = original(name), dynamodb._tables[name]
        if table.get("BillingModeSummary", {}).get("BillingMode") == "PAY_PER_REQUEST":
            description |= {} if "WarmThroughput" in table else {"WarmThroughput": dict(NEW_TABLE)}
            for index in description.get("GlobalSecondaryIndexes", []):
                index.setdefault("WarmThroughput", dict(NEW_TABLE))
        return description

    return describe


def _with_rules(original):
    """Names the rule of the throttled keys. ministack names none."""

    def describe(request):
        status, headers, body = original(request)
        response = json.loads(body)
        if status == 200 and response["ContributorInsightsStatus"] == "ENABLED":
            place = "-".join(part for part in (request["TableName"], request.get("IndexName")) if part)
            response["ContributorInsightsRuleList"] = [f"DynamoDBContributorInsights-PKT-{place}-1764000000000"]
            body = json.dumps(response).encode()
        return status, headers, body

    return describe


def _raced(original):
    def delete(request):
        if request.get("TableName") in RACED:
            table = dynamodb._tables[request["TableName"]]
            keys = (dynamodb._extract_key_val(request["Key"][name]) for name in (table["pk_name"], table["sk_name"]))
            dynamodb._remove_item(table, *keys)
        return original(request)

    return delete


def key_needed(action, arn):
    """Returns the customer's key that the caller of a DynamoDB request needs, besides the right on the
    table or index."""
    if not action.startswith("dynamodb:") or action.split(":")[1] not in _ITEM_ACTIONS:
        return None
    table = dynamodb._tables.get(arn.split(":table/", 1)[-1].split("/", 1)[0])
    key = ((table or {}).get("SSEDescription") or {}).get("KMSMasterKeyArn", "")
    # The aliases are the keys of DynamoDB and of the account, which need no right.
    return key if ":key/" in key else None


def install():
    """Installs this in the emulator of this process."""
    provisioners._RESOURCE_HANDLERS["AWS::DynamoDB::Table"] |= {"create": _create, "update": _update, "delete": _delete}
    set_item, remove_item = dynamodb._set_item, dynamodb._remove_item

    def noted_set(table, partition, sort, item):
        old = set_item(table, partition, sort, item)
        JOURNAL.note(table, (partition, sort), item)
        return old

    def noted_remove(table, partition, sort):
        old = remove_item(table, partition, sort)
        JOURNAL.note(table, (partition, sort), None)
        return old

    dynamodb._set_item, dynamodb._remove_item = noted_set, noted_remove
    for name, change in (
        ("_delete_item", _raced),
        ("_put_item", _throttled),
        ("_update_item", _throttled),
        ("_delete_item", _throttled),
        ("_restore_table_to_point_in_time", _restored),
        ("_update_table", _warmed),
        ("_table_description", _described),
        ("_describe_contributor_insights", _with_rules),
    ):
        setattr(dynamodb, name, change(getattr(dynamodb, name)))
