"""Deploys the template with different parameters, and checks and uses each stack."""

import json
import re

import functions
from emulated import ADDITION, MERGE_PATCH, Api, StackFailed, await_that
from environment import ACCOUNT, REGION
from ministack.core.responses import request_scope
from ministack.services import cloudwatch
from ministack.services.cloudformation import _stacks

ISSUER = f"https://cognito-idp.{REGION}.amazonaws.com"
EXISTING = "orders"

VARIANTS = {
    "defaults": {},
    "everyone": {"ApiAuth": "NONE", "ApiOpenToEveryone": "true"},
    "provisioned, rising": {
        "CapacityMode": "provisioned",
        "MaxReadUnits": "50",
        "MaxWriteUnits": "100",
    },
    "provisioned, fixed": {"CapacityMode": "provisioned", "ReadUnits": "7", "WriteUnits": "8"},
    "on-demand maximum, warm": {
        "OnDemandMaxWriteUnits": "9000",
        "WarmReadUnits": "13000",
        "WarmWriteUnits": "5000",
    },
    "warming allowed": {"MaxWarmWriteUnits": "40000", "MaxWarmReadUnits": "120000"},
    "an expected peak": {"ExpectedPeakWriteUnits": "24000", "ReadReplicas": "1"},
    "three read replicas, a number as sort key": {
        "ReadReplicas": "3",
        "SortKeyType": "N",
        "SortKeyName": "at",
    },
    "browsers": {"CorsAllowOrigins": "https://a.example,https://b.example"},
    "notified by mail": {"EncryptionKey": "aws-managed", "NotificationEmail": "a@example.com"},
    "schedules": {
        "PeakSchedule": "cron(45 17 ? * FRI *)",
        "PeakTimezone": "Europe/London",
        "PeakPartitionKey": "/shared/firetvGen2.txt",
        "PeakWriteUnits": "20000",
        "DrainSchedule": "rate(1 minute)",
        "ShrinkAfterSeconds": "86400",
        "SettleAfterSeconds": "3600",
        "StreamView": "NEW_AND_OLD_IMAGES",
        "TimeToLiveAttribute": "expires",
        "ReserveShardScalerConcurrency": "true",
    },
    "appends only": {"Writes": "appends"},
    "nothing optional": {
        "MaxWarmWriteUnits": "0",
        "Dashboard": "false",
        "DeletionProtection": "false",
        "PointInTimeRecovery": "false",
    },
}


def check(report, world):
    for number, (title, wanted) in enumerate(VARIANTS.items()):
        stack = created(report, world, title, f"variant-{number}", wanted)
        if stack is None:
            continue
        api = world.caller(stack)
        if wanted.get("ApiAuth") == "NONE":
            api = Api(world.account, stack.outputs["ApiUrl"])
        if title == "defaults":
            signed(report, world, stack, api)
        used(report, title, api, wanted)
        if peak := wanted.get("ExpectedPeakWriteUnits"):
            warm(report, world, title, stack, peak)
        schedules(report, world, title, stack, wanted)
        finished(report, world, title, stack)
    tokens(report, world)
    existing(report, world)
    refused(report, world)


def created(report, world, title, name, wanted):
    try:
        stack = world.stack(name, wanted)
    except StackFailed as failed:
        report.check(f"{title}: the stack is created", False, failed)
        return None
    faults = list(unsound(stack))
    report.check(
        f"{title}: the stack is created, {len(stack.resources())} resources, all correct",
        not faults,
        faults,
    )
    return stack


def finished(report, world, title, stack):
    """Deletes a complete stack, which keeps its tables."""
    own = {stack.outputs["MainTableName"], stack.outputs["MetadataTableName"]}
    stack.delete()
    report.check(
        f"{title}: the deleted stack keeps its tables",
        own <= world.account.tables(),
        world.account.tables(),
    )
    world.clear()


def used(report, title, api, wanted):
    """Checks the response of every route."""
    number = wanted.get("SortKeyType") == "N"
    a, b, c = (1, 2, 3) if number else ("a", "b", "c")
    appends = wanted.get("Writes") == "appends"
    batch = {"items": [{"partition_key": "used", "sort_key": c, "attributes": {}}]}
    merge = {"attributes": {"n": None, "m": 2}}
    first = api.post("used", a)
    expected = [
        ("POST /items", first.status, 201),
        (
            "POST /items, create only",
            api.post("used", a, headers={"If-None-Match": "*"}).status,
            405 if appends else 412,
        ),
        ("POST /items/batch", api.request("POST", "/items/batch", None, batch).status, 200),
        ("PUT /item", api.put("used", b).status, 405 if appends else 200),
        (
            "PATCH /item, merged",
            api.patch("used", b, merge, MERGE_PATCH).status,
            405 if appends else 200,
        ),
        (
            "PATCH /item, added",
            api.patch("used", b, {"add": {"m": 2}}, ADDITION).status,
            405 if appends else 200,
        ),
        ("DELETE /item", api.delete("used", c).status, 405 if appends else 204),
        ("GET /item", api.get("used", a).status, 200),
        (
            "GET /items",
            [item["sort_key"] for item in (api.query("used").json or {}).get("items", [])],
            [a, c] if appends else [a, b],
        ),
        ("GET /shards", api.request("GET", "/shards", {"partition_key": "used"}).status, 200),
    ]
    wrong = [
        f"{route}: {found}, not {wanted}" for route, found, wanted in expected if found != wanted
    ]
    report.check(f"{title}: every route responds correctly", not wrong, f"{wrong}; the first: {first}")


def warm(report, world, title, stack, peak):
    """Checks the warm throughput of the new table and its index, and the shard-scaler's budget."""
    table = world.account.client("dynamodb").describe_table(
        TableName=stack.outputs["MainTableName"]
    )["Table"]
    units = [
        each["WarmThroughput"]["WriteUnitsPerSecond"]
        for each in (table, *table["GlobalSecondaryIndexes"])
    ]
    scaler = world.account.client("lambda").get_function_configuration(
        FunctionName=stack.outputs["ShardScalerFunctionName"], Qualifier="live"
    )
    budget = scaler["Environment"]["Variables"]["MAX_WARM_WRITE_UNITS"]
    report.equal(
        f"{title}: the table and its index are warm, and the budget allows as much",
        (units, budget),
        ([int(peak)] * 2, peak),
    )


def signed(report, world, stack, api):
    """Checks the callers of an API with the default credentials."""
    url = stack.outputs["ApiUrl"]
    stranger = Api(world.account, url, world.user([]))
    callers = {"nobody": Api(world.account, url), "a stranger": stranger, "a caller": api}
    found = {who: caller.get("used", "x").status for who, caller in callers.items()}
    report.equal(
        "defaults: only a permitted caller succeeds",
        found,
        {"nobody": 403, "a stranger": 403, "a caller": 404},
    )


def tokens(report, world):
    """Checks an API for holders of tokens from a user pool of the same account."""
    cognito = world.account.client("cognito-idp")
    pool = cognito.create_user_pool(PoolName="tokens")["UserPool"]["Id"]
    flows = ["ALLOW_USER_PASSWORD_AUTH", "ALLOW_REFRESH_TOKEN_AUTH"]
    client = cognito.create_user_pool_client(
        UserPoolId=pool, ClientName="tokens", ExplicitAuthFlows=flows
    )["UserPoolClient"]["ClientId"]
    cognito.admin_create_user(UserPoolId=pool, Username="a", MessageAction="SUPPRESS")
    cognito.admin_set_user_password(
        UserPoolId=pool, Username="a", Password="A-password-0", Permanent=True
    )
    login = {"USERNAME": "a", "PASSWORD": "A-password-0"}
    token = cognito.initiate_auth(
        ClientId=client, AuthFlow="USER_PASSWORD_AUTH", AuthParameters=login
    )["AuthenticationResult"]["IdToken"]
    wanted = {
        "ApiAuth": "JWT",
        "ApiJwtIssuer": f"{ISSUER}/{pool}",
        "ApiJwtAudience": f"somebody,{client}",
    }
    stack = created(report, world, "tokens", "variant-tokens", wanted)
    if stack is None:
        return
    url = stack.outputs["ApiUrl"]
    used(report, "tokens", Api(world.account, url, token=token), {})
    header, payload, signature = token.split(".")
    forged = f"{header}.{payload}.{signature[:-4]}AAAA"
    found = {
        caller: Api(world.account, url, token=given).get("used", "a").status
        for caller, given in (("nobody", None), ("a forger", forged))
    }
    report.equal("tokens: every other caller is rejected", found, {"nobody": 401, "a forger": 401})
    finished(report, world, "tokens", stack)


def make_table(world, name, sort_key_type="S", keys=("partition_key", "sort_key")):
    """Creates a table of another program."""
    world.account.client("dynamodb").create_table(
        TableName=name,
        AttributeDefinitions=[
            {"AttributeName": keys[0], "AttributeType": "S"},
            {"AttributeName": keys[1], "AttributeType": sort_key_type},
        ],
        KeySchema=[
            {"AttributeName": keys[0], "KeyType": "HASH"},
            {"AttributeName": keys[1], "KeyType": "RANGE"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )


def existing(report, world):
    """Deploys over an existing table."""
    dynamodb = world.account.client("dynamodb")
    make_table(world, EXISTING)
    dynamodb.put_item(
        TableName=EXISTING,
        Item={"partition_key": {"S": "old"}, "sort_key": {"S": "a"}, "kept": {"N": "7"}},
    )
    before = dynamodb.describe_table(TableName=EXISTING)["Table"]
    title = "an existing table"
    stack = created(
        report,
        world,
        title,
        "variant-existing",
        {"ExistingTable": EXISTING, "AdoptUnsharded": "true"},
    )
    if stack is None:
        return
    api = world.caller(stack)
    report.equal(
        f"{title}: its items are read",
        (api.get("old", "a").json or {}).get("attributes"),
        {"kept": 7},
    )
    used(report, title, api, {})
    after = dynamodb.describe_table(TableName=EXISTING)["Table"]
    kept = [name for name in after if name not in ("ItemCount", "TableSizeBytes")]
    report.equal(
        f"{title}: the stack has not changed the table",
        {name: after[name] for name in kept},
        {name: before.get(name) for name in kept},
    )
    finished(report, world, title, stack)
    make_table(world, EXISTING, keys=("other", "keys"))
    for title, wanted in (
        ("a missing table", "absent"),
        ("a table with other keys", EXISTING),
    ):
        try:
            world.stack("variant-wrong", {"ExistingTable": wanted})
            report.check(f"{title}: the deployment fails", False, "it succeeds")
        except StackFailed as failed:
            report.check(
                f"{title}: the deployment fails with the reason",
                wanted in str(failed) or "partition key" in str(failed),
                failed,
            )
        world.clear()


def refused(report, world):
    """Checks that the template's rules refuse conflicting parameters."""
    for wanted in ({"ApiAuth": "NONE"}, {"ApiAuth": "JWT"}):
        try:
            world.stack("variant-refused", wanted)
            report.check(f"{wanted} is refused", False, "it is not")
        except (
            StackFailed,
            world.account.client("cloudformation").exceptions.ClientError,
        ) as error:
            report.check(f"{wanted} is refused", "rule" in str(error) or "Api" in str(error), error)
        world.clear()


def schedules(report, world, title, stack, wanted):
    """Checks that the schedules wake the shard-scaler, and that it succeeds."""
    names = functions.schedules(stack.name)
    expected = 1 + ("PeakSchedule" in wanted) + ("DrainSchedule" in wanted)
    functions.INVOCATIONS.clear()
    with request_scope(ACCOUNT, REGION):
        fired = [functions.fire(name) for name in names]
    scaler = stack.outputs["ShardScalerFunctionName"]
    await_that(
        lambda: [name for name, _ in functions.INVOCATIONS].count(scaler) >= len(names),
        "the schedules' events",
    )
    failed = [name for name, failed in functions.INVOCATIONS if failed]
    report.check(
        f"{title}: {expected} of its schedules wake the shard-scaler, which succeeds",
        fired == ["invoked"] * expected and not failed,
        (fired, failed),
    )


def unsound(stack):
    """Returns the faults of a created stack."""
    for name, value in stack.outputs.items():
        if not value or "${" in value:
            yield f"output {name} is {value!r}"
    with request_scope(ACCOUNT, REGION):
        family = [
            each
            for each in _stacks.values()
            if each["StackId"] == stack.identity or each.get("RootId") == stack.identity
        ]
        for each in family:
            for logical, resource in each["_resources"].items():
                yield from _unresolved(logical, resource)
        yield from _alarms(stack)


def _unresolved(logical, resource):
    text = json.dumps(resource.get("Properties", {}), default=str)
    # Access logs and traffic shifting contain variables of their own.
    if left := re.findall(r"\$\{(?!context)[^}]*\}|\"(?:Ref|Fn::\w+)\"", text):
        yield f"{logical} holds the unresolved {sorted(set(left))}"


def _alarms(stack):
    main, metadata = stack.outputs["MainTableName"], stack.outputs["MetadataTableName"]
    alarms = [
        alarm for name, alarm in cloudwatch._alarms.items() if name.startswith(f"{stack.name}-")
    ]
    if not alarms:
        yield "there are no alarms"
    waking = 0
    replicas = {
        dimension["Value"]
        for alarm in alarms
        for dimension in alarm.get("Dimensions") or []
        if dimension["Name"] == "GlobalSecondaryIndexName"
    }
    for alarm in alarms:
        for dimension in alarm.get("Dimensions") or []:
            of_metadata = alarm["AlarmName"].startswith(f"{stack.name}-metadata-")
            if dimension["Name"] == "TableName" and dimension["Value"] != (
                metadata if of_metadata else main
            ):
                yield f"alarm {alarm['AlarmName']} watches the table {dimension['Value']}"
        for action in alarm["AlarmActions"]:
            if ":lambda:" in action:
                waking += 1
                if not functions.may_invoke(functions.ALARMS, action, alarm["AlarmArn"]):
                    yield f"alarm {alarm['AlarmName']} may not wake {action}"
    if waking != 4 + len(replicas):
        yield f"{waking} alarms wake the shard-scaler"
