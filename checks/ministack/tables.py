"""Additions to ministack for DynamoDB: see README.md beside this file."""

import copy
import json
import secrets
import string
import threading
import time
from collections import defaultdict

from ministack.services import dynamodb
from ministack.services.cloudformation import provisioners
from typed import typed

# The warm throughput of a new on-demand table. [DynamoDB developer guide, warm throughput]
NEW_TABLE = {"ReadUnitsPerSecond": 12_000, "WriteUnitsPerSecond": 4_000, "Status": "ACTIVE"}
# Properties of AWS::DynamoDB::Table with calls of their own.
_CALLS_OF_THEIR_OWN = ("TimeToLiveSpecification", "PointInTimeRecoverySpecification", "ContributorInsightsSpecification")
# Operations that use the customer's key of an encrypted table.
_ITEM_ACTIONS = ("PutItem", "GetItem", "DeleteItem", "UpdateItem", "Query", "Scan", "BatchGetItem", "BatchWriteItem")


class Refused(ValueError):
    """The service refused a call by CloudFormation."""


def _call(function, request):
    status, _, body = function(request)
    response = json.loads(body)
    if status >= 400:
        raise Refused(response.get("message") or response.get("Message") or str(response))
    return response


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
            writes = list(self._writes[table["TableId"]])
        for at, (partition, sort), item in writes:
            if at > when:
                break
            if item is None:
                items[partition].pop(sort, None)
            else:
                items[partition][sort] = copy.deepcopy(item)
        return defaultdict(dict, {partition: of_it for partition, of_it in items.items() if of_it})


class Throttle:
    """Throttles writes of some stored keys for the key range, as a hot partition does."""

    def __init__(self):
        self._matching = {}

    def writes(self, table_name, is_hot):
        """Throttles writes. `is_hot` receives each stored partition key."""
        self._matching[table_name] = is_hot

    def none(self, table_name):
        self._matching.pop(table_name, None)

    def rejection(self, request):
        table = request.get("TableName", "").rsplit("/", 1)[-1]
        is_hot = self._matching.get(table)
        key_name = dynamodb._tables[table]["pk_name"] if is_hot and table in dynamodb._tables else None
        stored = request.get("Item", request.get("Key", {})).get(key_name, {}).get("S")
        if not is_hot or stored is None or not is_hot(stored):
            return None
        arn = dynamodb._tables[table]["TableArn"]
        body = {
            "__type": "com.amazonaws.dynamodb.v20120810#ThrottlingException",
            "message": "Throughput exceeds the current capacity of your table or index.",
            "throttlingReasons": [{"reason": "TableWriteKeyRangeThroughputExceeded", "resource": arn}],
        }
        return 400, {"Content-Type": "application/x-amz-json-1.0"}, json.dumps(body).encode()


JOURNAL = Journal()
THROTTLE = Throttle()
# Tables of which another caller deletes an item a moment before it is deleted.
RACED = set()


def _raced(original):
    def delete(request):
        table = dynamodb._tables.get(request.get("TableName"))
        if table is not None and request["TableName"] in RACED:
            key = request["Key"]
            names = [name for name in (table["pk_name"], table["sk_name"]) if name]
            dynamodb._remove_item(table, *(dynamodb._extract_key_val(key[name]) for name in names))
        return original(request)

    return delete


def _create(logical_id, properties, stack_name):
    properties = copy.deepcopy(properties)
    apart = {name: properties.pop(name) for name in _CALLS_OF_THEIR_OWN if name in properties}
    insights = {
        index["IndexName"]: index.pop("ContributorInsightsSpecification", None) for index in properties.get("GlobalSecondaryIndexes", [])
    }
    # ministack repeats names when a stack is created again, but CloudFormation does not.
    suffix = "".join(secrets.choice(string.ascii_uppercase + string.digits) for _ in range(12))
    name = properties.pop("TableName", None) or f"{stack_name}-{logical_id}-{suffix}"
    protected = properties.pop("DeletionProtectionEnabled", False)
    stream = properties.pop("StreamSpecification", None)
    encryption = properties.pop("SSESpecification", None)
    request = {**properties, "TableName": name, "DeletionProtectionEnabled": protected}
    if stream:
        request["StreamSpecification"] = {"StreamEnabled": True, **{k: v for k, v in stream.items() if k == "StreamViewType"}}
    if encryption:
        renamed = {"SSEEnabled": "Enabled"}
        request["SSESpecification"] = {renamed.get(key, key): value for key, value in encryption.items()}
    request = typed("dynamodb", "CreateTable", request)
    _call(dynamodb._create_table, request)
    table = dynamodb._tables[name]
    if warm := request.get("WarmThroughput"):
        table["WarmThroughput"] = {**warm, "Status": "ACTIVE"}
    try:
        _configure(name, apart)
        for index, wanted in insights.items():
            _insights(name, index, wanted)
    except ValueError:
        table["DeletionProtectionEnabled"] = False
        _call(dynamodb._delete_table, {"TableName": name})
        raise
    return name, provisioners._ddb_attrs(table)


def _configure(name, apart):
    if ttl := apart.get("TimeToLiveSpecification"):
        _call(dynamodb._update_ttl, typed("dynamodb", "UpdateTimeToLive", {"TableName": name, "TimeToLiveSpecification": ttl}))
    if recovery := apart.get("PointInTimeRecoverySpecification"):
        request = {"TableName": name, "PointInTimeRecoverySpecification": recovery}
        _call(dynamodb._update_continuous_backups, typed("dynamodb", "UpdateContinuousBackups", request))
    _insights(name, None, apart.get("ContributorInsightsSpecification"))


def _insights(name, index, wanted):
    if not wanted:
        return
    request = {"TableName": name, "ContributorInsightsAction": "ENABLE" if str(wanted["Enabled"]).lower() == "true" else "DISABLE"}
    request |= {"IndexName": index} if index else {}
    request |= {"ContributorInsightsMode": wanted["Mode"]} if "Mode" in wanted else {}
    _call(dynamodb._update_contributor_insights, typed("dynamodb", "UpdateContributorInsights", request))


def _update(physical_id, old, new, stack_name, logical_id=None):
    if {name: old.get(name) for name in ("KeySchema", "TableName")} != {name: new.get(name) for name in ("KeySchema", "TableName")}:
        # The new table has a new name. The UpdateReplacePolicy of the old one keeps or deletes it.
        return _create(logical_id, new, stack_name)
    simple = ("BillingMode", "ProvisionedThroughput", "OnDemandThroughput", "WarmThroughput", "DeletionProtectionEnabled")
    changed = {name: new[name] for name in simple if name in new and old.get(name) != new[name]}
    table = dynamodb._tables[physical_id]
    if changed:
        if new.get("BillingMode") == "PAY_PER_REQUEST":
            changed.pop("ProvisionedThroughput", None)
        _call(dynamodb._update_table, typed("dynamodb", "UpdateTable", {"TableName": physical_id, **changed}))
    _configure(physical_id, {name: new[name] for name in _CALLS_OF_THEIR_OWN if name in new and old.get(name) != new[name]})
    rest = ("StreamSpecification", "GlobalSecondaryIndexes", "SSESpecification")
    if any(old.get(name) != new.get(name) for name in rest):
        kept = {name: value for name, value in new.items() if name in (*rest, "AttributeDefinitions", "KeySchema")}
        before = {name: value for name, value in old.items() if name in (*rest, "AttributeDefinitions", "KeySchema")}
        provisioners._ddb_update(physical_id, {**before, "TableName": physical_id}, {**kept, "TableName": physical_id}, stack_name, logical_id)
    return physical_id, provisioners._ddb_attrs(table)


def _delete(physical_id, _):
    if physical_id in dynamodb._tables:
        _call(dynamodb._delete_table, {"TableName": physical_id})


def _restore(request, original):
    """Emulates `RestoreTableToPointInTime` to the requested second. ministack restores the
    present."""
    source = dynamodb._tables.get(request.get("SourceTableName"))
    if source is None:
        return original(request)
    if not _recoverable(source["TableName"]):
        message = f"Point in time recovery is not enabled for table '{source['TableName']}'"
        body = {"__type": "PointInTimeRecoveryUnavailableException", "message": message}
        return 400, {"Content-Type": "application/x-amz-json-1.0"}, json.dumps(body).encode()
    when = time.time() if request.get("UseLatestRestorableTime") else float(request["RestoreDateTime"])
    response = original(request)
    if response[0] == 200:
        restored = dynamodb._tables[request["TargetTableName"]]
        restored["items"] = JOURNAL.at(source, when)
        dynamodb._items_replaced(restored)
        for partition, of_it in restored["items"].items():
            for sort, item in of_it.items():
                JOURNAL.note(restored, (partition, sort), item)
        # Properties that a restore drops. [DynamoDB developer guide, point-in-time recovery]
        dynamodb._ttl_settings.pop(restored["TableName"], None)
        dynamodb._pitr_settings.pop(restored["TableName"], None)
        restored["StreamSpecification"] = None
        restored["DeletionProtectionEnabled"] = False
    return response


def _recoverable(name):
    described = _call(dynamodb._describe_continuous_backups, {"TableName": name})["ContinuousBackupsDescription"]
    return described["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"


def _key_of(arn):
    """Returns the customer's key that encrypts a table, by the ARN of the table or an index."""
    table = dynamodb._tables.get(arn.split(":table/", 1)[-1].split("/", 1)[0])
    key = ((table or {}).get("SSEDescription") or {}).get("KMSMasterKeyArn", "")
    # The aliases are the keys of DynamoDB and of the account, which need no right.
    return key if ":key/" in key else None


def install():
    """Installs this in the emulator of this process."""
    provisioners._RESOURCE_HANDLERS["AWS::DynamoDB::Table"] = {
        "create": _create,
        "update": _update,
        "update_with_logical_id": True,
        "delete": _delete,
    }

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

    for name in ("_put_item", "_update_item", "_delete_item"):
        original = getattr(dynamodb, name)
        setattr(dynamodb, name, lambda request, original=original: THROTTLE.rejection(request) or original(request))

    dynamodb._delete_item = _raced(dynamodb._delete_item)

    restore = dynamodb._restore_table_to_point_in_time
    dynamodb._restore_table_to_point_in_time = lambda request: _restore(request, restore)

    update = dynamodb._update_table

    def warmed(request):
        response = update(request)
        if response[0] == 200 and (warm := request.get("WarmThroughput")):
            dynamodb._tables[request["TableName"]]["WarmThroughput"] = {**warm, "Status": "ACTIVE"}
        for index in request.get("GlobalSecondaryIndexUpdates") or []:
            change = index.get("Update") or {}
            if response[0] == 200 and (warm := change.get("WarmThroughput")):
                for known in dynamodb._tables[request["TableName"]]["GlobalSecondaryIndexes"]:
                    if known["IndexName"] == change["IndexName"]:
                        known["WarmThroughput"] = {**warm, "Status": "ACTIVE"}
        return response

    dynamodb._update_table = warmed

    describe = dynamodb._table_description

    def described(name):
        description = describe(name)
        table = dynamodb._tables[name]
        on_demand = table.get("BillingModeSummary", {}).get("BillingMode") == "PAY_PER_REQUEST"
        if on_demand and "WarmThroughput" not in table:
            description["WarmThroughput"] = dict(NEW_TABLE)
        for index in description.get("GlobalSecondaryIndexes", []):
            if on_demand:
                index.setdefault("WarmThroughput", dict(NEW_TABLE))
        return description

    dynamodb._table_description = described

    insights = dynamodb._describe_contributor_insights

    def with_rules(request):
        status, headers, body = insights(request)
        response = json.loads(body)
        if status == 200 and response["ContributorInsightsStatus"] == "ENABLED":
            place = "-".join(part for part in (request["TableName"], request.get("IndexName")) if part)
            response["ContributorInsightsRuleList"] = [f"DynamoDBContributorInsights-PKT-{place}-1764000000000"]
            body = json.dumps(response).encode()
        return status, headers, body

    dynamodb._describe_contributor_insights = with_rules


def key_needed(action, arn):
    """Returns the key that the caller of a DynamoDB request needs, besides the right on the
    table."""
    service, _, name = action.partition(":")
    if service != "dynamodb" or name not in _ITEM_ACTIONS:
        return None
    return _key_of(arn)

