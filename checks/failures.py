"""Makes a first deployment fail at each of its resources in turn: nothing must remain, and the next
deployment must succeed. A deployment over an unusable table must fail with the reason."""

import stacks
from emulated import Stack, StackFailed
from ministack.services.cloudformation import engine

NAME = "failing"
PROTECTION = "TableProtection"
# Operation, field of the response, and field of the name, by service.
LISTED = {
    "dynamodb": ("list_tables", "TableNames", None),
    "lambda": ("list_functions", "Functions", "FunctionName"),
    "iam": ("list_roles", "Roles", "RoleName"),
    "cloudwatch": ("describe_alarms", "MetricAlarms", "AlarmName"),
    "logs": ("describe_log_groups", "logGroups", "logGroupName"),
    "sqs": ("list_queues", "QueueUrls", None),
    "sns": ("list_topics", "Topics", "TopicArn"),
    "scheduler": ("list_schedules", "Schedules", "Name"),
    "apigatewayv2": ("get_apis", "Items", "ApiId"),
}
# Together these stacks have every resource that a stack can have, except those of canaries.
WANTED = [
    {
        "CapacityMode": "provisioned",
        "MaxReadUnits": "50",
        "MaxWriteUnits": "100",
        "NotificationEmail": "a@example.com",
    },
    {"DrainSchedule": "rate(1 minute)", "PeakSchedule": "rate(1 day)", "PeakPartitionKey": "k", "ReadReplicas": "3"},
]
# Existing tables with which a deployment must fail, and a part of the reason.
UNUSABLE = {
    ("missing", "metadata"): 'The table "missing" does not exist in this account and Region.',
    ("other-keys", "metadata"): "has the keys HASH id S; needed: HASH partition_key S, RANGE sort_key S",
    ("main", "metadata"): "The function does not work with these tables",
}


def inventory(account):
    """Returns everything that a deployment may leave behind."""
    found = {("stored", kind, name) for kind, of_it in stacks.STORED.items() for name in of_it}
    dashboards = account.client("cloudwatch").list_dashboards()["DashboardEntries"]
    found |= {("dashboard", each["DashboardName"]) for each in dashboards}
    for service, (operation, field, name) in LISTED.items():
        client = account.client(service)
        pages = client.get_paginator(operation).paginate() if client.can_paginate(operation) else None
        for page in pages or [getattr(client, operation)()]:
            found |= {(service, each[name] if name else each) for each in page.get(field) or []}
    return found


def later_than_protection(template):
    """Returns the resources of the root template that may be created after the tables are
    protected. If one of them failed, CloudFormation could no longer remove the tables."""
    resources = template["Resources"]
    waited, pending = {PROTECTION}, [PROTECTION]
    while pending:
        found = engine._extract_deps(resources[pending.pop()], set(resources)) - waited
        waited |= found
        pending += found
    return sorted(set(resources) - waited)


def failed_at(world, wanted, logical, when="create"):
    """Creates a stack that fails at this resource. Returns what went wrong otherwise."""
    stack, before = Stack(world.account, NAME), inventory(world.account)
    stacks.FAILING[logical] = when
    try:
        stack.create(world.package, wanted)
        return "it did not fail"
    except StackFailed as failed:
        if "made to fail" not in str(failed):
            return str(failed)
    finally:
        stacks.FAILING.clear()
        stack.delete()
    return sorted(inventory(world.account) - before)


def check_unusable(report, world):
    world.account.create_table("other-keys", "id")
    world.account.create_table("main", "partition_key", "sort_key")
    world.account.create_table("metadata", "partition_key")
    # An item of a key, without the item of the table itself.
    world.account.client("dynamodb").put_item(TableName="metadata", Item={"partition_key": {"S": "key"}})
    for (main, metadata), reason in UNUSABLE.items():
        stack, found = Stack(world.account, NAME), "it succeeds"
        try:
            stack.create(world.package, {"ExistingTable": main, "ExistingMetadataTable": metadata})
        except StackFailed as failed:
            found = str(failed)
        stack.delete()
        report.check(f"a deployment over unusable tables fails: {reason}", reason in found, found)
    world.clear()


def check(report, world):
    check_unusable(report, world)
    later = later_than_protection(world.package.template)
    report.check("the protection of the tables waits for everything else", not later, later)
    seen = set()
    for wanted in WANTED:
        complete = world.stack(NAME, wanted)
        # In the order of creation, those of nested stacks with their parent.
        made = [name for name in complete.resources() if name not in seen]
        seen |= {*made}
        complete.delete()
        world.clear()
        wrong = {}
        # The protection also fails after it took effect, without CloudFormation learning of it.
        for logical, when in [*((name, "create") for name in made), (PROTECTION, "afterwards")]:
            if fault := failed_at(world, wanted, logical, when):
                wrong[f"{when} {logical}"] = fault
                world.clear()
        title = f"a first deployment with {', '.join(wanted)}"
        report.check(f"{title}, failing at each of {len(made)} resources, leaves nothing", not wrong, wrong)
        retried = world.stack(NAME, wanted)
        report.check(f"{title}: the retry succeeds", world.caller(retried).put("k", "s").status == 200)
        world.clear()
