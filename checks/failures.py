"""Makes a first deployment fail at each of its resources in turn: nothing must remain, and the next
deployment must succeed."""

import stacks
from emulated import Stack, StackFailed
from ministack.services.cloudformation import engine

NAME = "failing"
PROTECTION = "TableProtection"


def inventory(account):
    """Returns everything that a deployment may leave behind, by kind."""
    def names(service, operation, field, name):
        pages = account.client(service).get_paginator(operation) if account.client(service).can_paginate(operation) else None
        responses = pages.paginate() if pages else [getattr(account.client(service), operation)()]
        return {each if name is None else each[name] for response in responses for each in response.get(field) or []}

    return {
        "tables": names("dynamodb", "list_tables", "TableNames", None),
        "functions": names("lambda", "list_functions", "Functions", "FunctionName"),
        "roles": names("iam", "list_roles", "Roles", "RoleName"),
        "alarms": names("cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
        "dashboards": names("cloudwatch", "list_dashboards", "DashboardEntries", "DashboardName"),
        "log groups": names("logs", "describe_log_groups", "logGroups", "logGroupName"),
        "queues": names("sqs", "list_queues", "QueueUrls", None),
        "topics": names("sns", "list_topics", "Topics", "TopicArn"),
        "schedules": names("scheduler", "list_schedules", "Schedules", "Name"),
        "APIs": names("apigatewayv2", "get_apis", "Items", "ApiId"),
        "scaling targets": set(stacks.TARGETS),
        "scaling policies": set(stacks.POLICIES),
    }


# Together these stacks have every resource that a stack can have.
WANTED = {
    "provisioned": {"CapacityMode": "provisioned", "MaxReadUnits": "50", "MaxWriteUnits": "100", "NotificationEmail": "a@example.com"},
    "on demand": {"DrainSchedule": "rate(1 minute)", "PeakSchedule": "rate(1 day)", "PeakPartitionKey": "k", "ReadReplicas": "1"},
}


def _later_than_protection(template):
    """Returns the resources of the root template that may be created after the tables are
    protected. If one of them failed, CloudFormation could no longer remove the tables."""
    resources = template["Resources"]
    names = set(resources)
    waited, pending = set(), [PROTECTION]
    while pending:
        for name in engine._extract_deps(resources[pending.pop()], names) - waited:
            waited.add(name)
            pending.append(name)
    return sorted(names - waited - {PROTECTION})


def check(report, world):
    later = _later_than_protection(world.package.template)
    report.check("the protection of the tables waits for everything else", not later, later)
    for title, wanted in WANTED.items():
        before = inventory(world.account)
        complete = world.stack(NAME, wanted)
        # In the order of creation, those of nested stacks with their parent.
        made = [name.split(".")[-1] for name in complete.resources()]
        complete.delete()
        world.clear()
        left, failed_otherwise = {}, {}
        # The protection also fails after it took effect, without CloudFormation learning of it.
        for logical, when in [(logical, "create") for logical in made] + [(PROTECTION, "afterwards")]:
            stacks.FAILURES.of(logical, when)
            stack = Stack(world.account, NAME)
            try:
                stack.create(world.package, wanted)
                failed_otherwise[f"{when} {logical}"] = "it did not fail"
            except StackFailed as failed:
                if "made to fail" not in str(failed):
                    failed_otherwise[f"{when} {logical}"] = str(failed)
            stacks.FAILURES.none()
            stack.delete()
            after = inventory(world.account)
            remains = {kind: sorted(after[kind] - before[kind]) for kind in after if after[kind] - before[kind]}
            if remains:
                left[f"{when} {logical}"] = remains
            world.clear()
        report.check(f"{title}: each of {len(made)} resources was made to fail", not failed_otherwise, failed_otherwise)
        report.check(f"{title}: a first deployment that failed at any of them leaves nothing", not left, left)
        stacks.FAILURES.of(made[-1])
        stack = Stack(world.account, NAME)
        try:
            stack.create(world.package, wanted)
        except StackFailed:
            pass
        stacks.FAILURES.none()
        stack.delete()
        retried = world.stack(NAME, wanted)
        report.check(f"{title}: the retry succeeds", world.caller(retried).put("k", "s").status == 200)
        world.clear()
