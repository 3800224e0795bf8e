"""Checks that every right of every role is used: without it, a named request fails.

A right is one action on one resource of a role's policy. A *scenario* shows the failure without it:
`prepare` brings the tables into a state, with all rights, and `act` raises `Fails` if the product
does not work. Each scenario runs once with all rights, and once without each right that it shows.
"""

import copy
import json
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from fnmatch import fnmatchcase

import evaluations
from scenarios import ONLY, SCENARIOS, SHOWN_AFTER_A_DRAIN, SHOWN_BY, Fails, Stage

# Those of the functions.
ROLES = ("WriterRole", "ReaderRole", "ShardScalerRole")
# Rights that the emulator cannot exercise, with the reason.
STOOD_IN = "CodeDeploy is simulated: it calls neither Lambda nor CloudWatch"
TABLE_ONLY = "ministack checks the right on the table only"
NOT_EMULATED = {
    ("DeploymentRole", "lambda:GetAlias"): STOOD_IN,
    ("DeploymentRole", "lambda:UpdateAlias"): STOOD_IN,
    ("DeploymentRole", "lambda:GetProvisionedConcurrencyConfig"): STOOD_IN,
    ("DeploymentRole", "cloudwatch:DescribeAlarms"): STOOD_IN,
    ("ShardScalerRole", "dynamodb:UpdateTable", "its indexes"): TABLE_ONLY,
}
UNUSED = "unused: no scenario needs it"


def as_list(value):
    return value if isinstance(value, list) else [value]


def units(account, role):
    """Returns the rights of a role: policy, statement's index, action, resource."""
    iam = account.client("iam")
    for policy in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        document = iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"]
        for index, statement in enumerate(document["Statement"]):
            for action in as_list(statement["Action"]):
                for resource in as_list(statement["Resource"]):
                    yield policy, index, action, resource
    if attached := iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        raise Fails(
            f"the role {role} has managed policies, whose rights this check cannot count: {attached}"
        )


class Without:
    """Takes one right from a role, and returns it at the end."""

    def __init__(self, account, role, unit):
        self.iam, self.role = account.client("iam"), role
        self.policy, self.index, self.action, self.resource = unit

    def __enter__(self):
        self.before = self.iam.get_role_policy(RoleName=self.role, PolicyName=self.policy)[
            "PolicyDocument"
        ]
        document = copy.deepcopy(self.before)
        statement = document["Statement"].pop(self.index)
        actions, resources = as_list(statement["Action"]), as_list(statement["Resource"])
        kept = [
            (actions, [each for each in resources if each != self.resource]),
            ([each for each in actions if each != self.action], [self.resource]),
        ]
        document["Statement"] += [
            {**statement, "Sid": f"Kept{number}", "Action": a, "Resource": r}
            for number, (a, r) in enumerate(kept)
            if a and r
        ]
        if not document["Statement"]:
            document["Statement"] = [{"Effect": "Deny", "Action": "none:None", "Resource": "*"}]
        self._put(document)

    def __exit__(self, *_):
        self._put(self.before)

    def _put(self, document):
        self.iam.put_role_policy(
            RoleName=self.role, PolicyName=self.policy, PolicyDocument=json.dumps(document)
        )


def check(report, world):
    """Checks each role on a stack of its own, all at the same time, because a process without the
    right to start tries for seconds."""
    world.package  # Built once, before the threads use it.
    works = [lambda role=role: _role(world, role) for role in (*ROLES, None)]
    works += [
        lambda kind=kind, rights=rights: _only(world, kind, rights) for kind, rights in ONLY.items()
    ]
    works += [
        lambda action=action: _drained(world, action)
        for action in ("dynamodb:DeleteItem", "dynamodb:GetItem")
    ]
    with ThreadPoolExecutor(len(works)) as pool:
        running = [pool.submit(work) for work in works]
        rows = []
        for each in as_completed(running):
            try:
                rows += each.result()
            # Report the findings of the other parts in any case.
            except Exception as error:
                traceback.print_exc()
                report.check("a part of the rights runs to its end", False, error)
            report.note(
                f"{sum(done.done() for done in running)} of {len(works)} parts of the rights are "
                "done"
            )
    rows.sort(key=lambda row: row[:3])
    _table(report, rows)
    wrong = [row for row in rows if "WRONG" in row[3]]
    unused = [row[:3] for row in rows if row[3] == UNUSED]
    stood_in = [row for row in rows if row[3].startswith("not emulated")]
    missed = len(rows) - len(wrong) - len(unused) - len(stood_in)
    summary = (
        f"{missed} of {len(rows)} rights were taken away, one at a time, and missed; "
        f"{len(stood_in)} cannot be exercised here"
    )
    report.check(summary, not wrong, wrong)
    report.check("no right is unused", not unused, unused)
    stale = sorted(set(SHOWN_BY) - {row[:3] for row in rows})
    report.check("every right that is checked here is in the template", not stale, stale)


def _role(world, wanted):
    """Checks the rights of one role, or, without a name, those of the roles of no function."""
    stage = Stage(world, "everything", (wanted or "others").removesuffix("Role").lower())
    rows = []
    for logical, role in stage.roles.items():
        if (wanted or logical) != logical or (wanted is None and logical in ROLES):
            continue
        for unit in units(world.account, role):
            right = (logical, unit[2], stage.kind(unit[3]))
            if right in SHOWN_AFTER_A_DRAIN:
                continue
            if reason := NOT_EMULATED.get(right[:2]) or NOT_EMULATED.get(right):
                rows.append((*right, f"not emulated: {reason}"))
            else:
                shown = right in SHOWN_BY
                found = _show(stage, SHOWN_BY[right], role, unit) if shown else UNUSED
                rows.append((*right, found))
    stage.end()
    return rows


def _the_unit(stage, right):
    [unit] = [
        unit
        for unit in units(stage.account, stage.roles[right[0]])
        if (unit[2], stage.kind(unit[3])) == right[1:]
    ]
    return unit


def _only(world, kind, rights):
    """Checks rights that only a stack of another kind grants."""
    stage = Stage(world, kind)
    rows = []
    for right, name in rights.items():
        role = stage.roles[right[0]]
        found = _show(stage, name, role, _the_unit(stage, right))
        rows.append((right[0], right[1], f"{right[2]}, {kind}", found))
    stage.end()
    return rows


def _drained(world, action):
    """Checks the rights that a drain needs two minutes after its beginning, when no reader uses the
    old copies any more. The process must be the same."""
    right = ("ShardScalerRole", action, "main table")
    name = SHOWN_AFTER_A_DRAIN[right]
    vanishing = action == "dynamodb:GetItem"
    stages = [
        Stage(world, "drained", f"{action[9:].lower()}-{kind}") for kind in ("with", "without")
    ]
    for stage in stages:
        stage.begin_drain()
    for stage in stages:
        stage.await_readers()
        if vanishing:
            stage.remove_old_copies()
    whole, lacking = stages
    roles = {whole.roles[right[0]]}
    evaluations.RECORD.take(roles)
    try:
        whole.end_drain(vanishing)
    except Fails as failed:
        return [(*right, f"WRONG  {name}: it fails with all rights: {failed}")]
    if not any(
        each.action == action and whole.main in each.resource
        for each in evaluations.RECORD.take(roles)
    ):
        return [(*right, f"WRONG  {name}: it does not use the right")]
    try:
        with Without(world.account, lacking.roles[right[0]], _the_unit(lacking, right)):
            lacking.end_drain(vanishing)
        found = f"WRONG  {name}: it succeeds without the right"
    except Fails as failed:
        found = _reason(name, failed)
    for stage in stages:
        stage.end()
    return [(*right, found)]


def _reason(name, failed):
    return f"{name}: {str(failed).splitlines()[0][:160]}"


def _show(stage, name, role, unit):
    """Returns the failure of the named scenario without a right. Its success with all rights is
    checked once."""
    _, _, action, resource = unit
    scenario = SCENARIOS[name]
    roles = set(stage.roles.values())
    if name not in stage.shown:
        stage.reset()
        scenario.prepare(stage)
        evaluations.RECORD.take(roles)
        try:
            scenario.act(stage)
        except Fails as failed:
            return f"WRONG  {name}: it fails with all rights: {failed}"
        stage.shown[name] = evaluations.RECORD.take(roles)
    if not any(
        each.role == role and each.action == action and fnmatchcase(each.resource, resource)
        for each in stage.shown[name]
    ):
        return f"WRONG  {name}: it does not use the right"
    stage.reset()
    scenario.prepare(stage)
    with Without(stage.account, role, unit):
        try:
            scenario.act(stage)
        except Fails as failed:
            return _reason(name, failed)
    return f"WRONG  {name}: it succeeds without the right"


def _table(report, rows):
    widths = [max(len(str(row[column])) for row in rows) for column in range(3)]
    titles = [title.ljust(width) for title, width in zip(("role", "action", "resource"), widths)]
    report.note(f"| {' | '.join(titles)} | without it")
    for row in rows:
        report.note(
            "| "
            + " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths))
            + f" | {row[3]}"
        )
