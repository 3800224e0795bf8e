"""This project's rules for cfn-lint (`--append-rules checks/rules`): promises of the templates that no
snapshot shows, because they compare the templates with each other, with the code or with documents.
Each reads the template before SAM's transform. checks/mutations.yaml has a broken template for each."""

import itertools
import json
import re
from functools import cache
from pathlib import Path

import yaml
from cfnlint.decode import cfn_yaml
from cfnlint.rules import CloudFormationLintRule, RuleMatch

ROOT = Path(__file__).parent.parent.parent
NO_VALUE = {"Ref": "AWS::NoValue"}
FUNCTION, NESTED = "AWS::Serverless::Function", "AWS::Serverless::Application"


def rule(identity, description):
    """Makes a rule of a function that yields faults: a place in the template, and a message."""

    def make(function):
        def match(_, cfn):
            path = Path(cfn.filename)
            return [RuleMatch(list(place), text) for place, text in function(load(path), path)]

        texts = {"shortdesc": description, "description": description, "source_url": "", "tags": []}
        return type(function.__name__, (CloudFormationLintRule,), {"id": identity, "match": match, **texts})

    return make


def load(path):
    return parsed(Path(path).read_text(encoding="utf-8"))


@cache
def parsed(text):
    return cfn_yaml.loads(text)


@cache
def code(path):
    return (ROOT / path).read_text(encoding="utf-8")


def of_type(template, *kinds):
    return {name: body for name, body in template["Resources"].items() if body["Type"] in kinds}


def members(value):
    """Yields the members of a list, or the value. Of a condition, the members of both branches."""
    if isinstance(value, dict) and set(value) == {"Fn::If"}:
        for branch in value["Fn::If"][1:]:
            yield from members(branch)
    elif isinstance(value, list):
        for each in value:
            yield from members(each)
    elif value not in (None, NO_VALUE):
        yield value


def inner(value, name):
    """Yields the operand of each intrinsic function or member of this name, anywhere in the value."""
    if isinstance(value, dict):
        yield from ([value[name]] if name in value else [])
        value = value.values()
    if not isinstance(value, str):
        for each in value if hasattr(value, "__iter__") else ():
            yield from inner(each, name)


def references(value):
    """Yields the named parameters, resources and pseudo parameters, in the order of the text."""
    if isinstance(value, list):
        for part in value:
            yield from references(part)
    elif isinstance(value, dict):
        for name, part in value.items():
            if name == "Ref":
                yield part
            elif name == "Fn::GetAtt":
                yield part[0]
            elif name == "Fn::Sub":
                yield from re.findall(r"\$\{([\w:]+)", part if isinstance(part, str) else part[0])
                yield from references(part)
            else:
                yield from references(part)


def conditions_behind(template, value):
    """Yields the conditions of a value, and transitively their conditions."""
    for name in [*(each[0] for each in inner(value, "Fn::If")), *inner(value, "Condition")]:
        yield name
        yield from conditions_behind(template, template["Conditions"][name])


def text_of(value):
    """Returns the text of Fn::Sub, or a text."""
    value = value.get("Fn::Sub", "") if isinstance(value, dict) else value
    return value if isinstance(value, str) else ""


# --- Rights.

# These actions do not support resource-level permissions.
EVERYWHERE = {"cloudwatch:DescribeAlarms", "xray:PutTelemetryRecords", "xray:PutTraceSegments"}
# A pattern may continue the name of a resource of the stack, or that of the rules that DynamoDB makes.
NARROW = re.compile(r"(\$\{(?!AWS::)[\w.]+\}[^*]*|DynamoDBContributorInsights)\*")


@rule("E9001", "Every right is for named actions, and scoped to resources of the stack")
def rights(template, _):
    for role, body in of_type(template, "AWS::IAM::Role", "AWS::IAM::Policy").items():
        for statement in members(list(inner(body["Properties"], "Statement"))):
            actions, resources = (list(members(statement.get(key))) for key in ("Action", "Resource"))
            wide = [action for action in actions if "*" in action]
            for resource in resources:
                text = text_of(resource)
                if resource == "*":
                    is_wide = not EVERYWHERE.issuperset(actions)
                else:
                    is_wide = "*" in text[:-1] or ("*" in text and not NARROW.search(text))
                wide += [resource] * is_wide
            if wide:
                yield ("Resources", role), f"{role}, {statement.get('Sid')} has more than the stack's own: {wide}"
    for name, body in of_type(template, FUNCTION).items():
        if added := body["Properties"].keys() & {"Policies", "Events", "FunctionUrlConfig"}:
            yield ("Resources", name), f"SAM adds rights for {', '.join(added)} of {name}"


# --- Alarms.


def names_of_alarms(template):
    found = of_type(template, "AWS::CloudWatch::Alarm")
    return {name: text_of(body["Properties"].get("AlarmName")) for name, body in found.items()}


def replica(name):
    """Returns the name of an alarm as rights and dashboard have it: one for all read replicas."""
    return re.sub(r"(hot-replica-)\d$", r"\1*", name)


@rule("E9002", "Every alarm is described and acts; one that wakes the shard-scaler may do so, and is re-armed")
def alarms(template, path):
    waking = set()
    for name, body in of_type(template, "AWS::CloudWatch::Alarm").items():
        place, properties = ("Resources", name), body["Properties"]
        title = text_of(properties.get("AlarmName"))
        needed = ["AlarmDescription", "TreatMissingData"] + ["AlarmActions"] * (".Version.Version}" not in title)
        if lacking := [field for field in needed if not properties.get(field)]:
            yield place, f"{name} lacks {', '.join(lacking)}"
        if not title.startswith("${Stack}-"):
            yield place, f"the name of {name} does not begin with the stack's"
        if {"Ref": "ShardScaler"} not in properties.get("AlarmActions", []):
            continue
        waking.add(title)
        # CloudWatch drops an action for which it has no permission yet.
        permission = template["Resources"].get(body.get("DependsOn"), {})
        allowed, called = inner(permission, "SourceArn"), list(inner(permission, "FunctionName"))
        known = [text_of(each).rsplit(":", 1)[-1] for each in allowed] == [title] and called == [{"Ref": "ShardScaler"}]
        if not known or permission.get("Condition") != body.get("Condition"):
            yield place, f"{name} does not wait for the permission to invoke the shard-scaler"
    if waking:
        sent = set(re.findall(r'"(\$\{Stack\}-[\w-]+)"', str(list(inner(template, "Input")))))
        if other := sent ^ waking:
            yield ("Resources",), f"a schedule re-arms other alarms than those that wake: {sorted(other)}"
        statements = members(list(inner(load(path.parent / "functions.yaml"), "Statement")))
        resources = [each["Resource"] for each in statements if each["Action"] == "cloudwatch:SetAlarmState"]
        allowed = {text_of(each).rsplit(":", 1)[-1] for each in members(resources)}
        if other := allowed ^ {replica(name) for name in waking}:
            yield ("Resources",), f"the shard-scaler may re-arm other alarms than those that wake it: {sorted(other)}"
    for name, body in of_type(template, "AWS::CloudWatch::Dashboard").items():
        every = {*names_of_alarms(template).values(), *names_of_alarms(load(path.parent / "triggers.yaml")).values()}
        shown = set(re.findall(r'alarm:(\$\{Stack\}-[\w-]+)"', text_of(body["Properties"]["DashboardBody"])))
        if other := shown ^ {alarm for alarm in every if replica(alarm) == alarm}:
            yield ("Resources", name), f"the dashboard shows other alarms than there are: {sorted(other)}"


# --- The API.

CREDENTIALS = {"authorization", "content-type", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"}


@rule("E9003", "The API has the routes, the credentials and the headers of its description")
def api(template, _):
    route = re.findall(r'\("([A-Z]+)", "(/[a-z/]+)", Function::(\w+), ', code("functions/api/src/request.rs"))
    served = {(method, path): function for method, path, function in route}
    described = description()
    for name in of_type(template, "AWS::Serverless::HttpApi"):
        place, properties = ("Resources", name), template["Resources"][name]["Properties"]
        # CloudFormation passes a parameter as text, and converts it only where a schema has a number.
        if "RouteSettings" in properties:
            yield place, "RouteSettings has no schema, so its numbers would be text"
        body, asked = properties["DefinitionBody"], {}
        if other := {*operations(body)} ^ {*served} | {*operations(described)} ^ {*served}:
            yield place, f"not all of the template, openapi.yaml and request.rs have {sorted(other)}"
        for key, operation in operations(body).items():
            integration, function = operation["x-amazon-apigateway-integration"], served.get(key)
            if f"/functions/${{{function}}}/invocations" not in text_of(integration["uri"]):
                yield place, f"{key} does not go to the {function}"
            security = operation.get("security")
            if not security or asked.setdefault(function, security) != security:
                yield place, f"{key} asks for other credentials than the other operations of the {function}"
        [cors] = members(body["x-amazon-apigateway-cors"])
        parts = [described["paths"], {key: part for key, part in described["components"].items() if key != "headers"}]
        requests = {each["name"].lower() for part in parts for each in parameters(part) if each["in"] == "header"}
        responses = {header.lower() for part in parts for each in inner(part, "headers") for header in each}
        wanted = {
            "allowMethods": {method for method, _ in served},
            "allowHeaders": requests | CREDENTIALS,
            "exposeHeaders": responses,
        }
        for key, names in wanted.items():
            if other := {*cors[key]} ^ names:
                yield place, f"{key} of other origins and the description differ: {sorted(other)}"


def operations(body):
    """Returns the operations of an OpenAPI description, by method and path."""
    rows = [(path, *each) for path, methods in body["paths"].items() for each in methods.items()]
    return {(method.upper(), path): each for path, method, each in rows if method != "parameters"}


@cache
def description():
    return yaml.safe_load(code("functions/api/openapi.yaml"))


def parameters(value):
    """Yields every parameter in a part of an OpenAPI description."""
    if isinstance(value, dict) and {"name", "in"} <= value.keys():
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parameters(each)


# --- Settings and versions.


@rule("E9004", "A changed value is a new version of each function")
def fingerprint(template, _):
    functions = of_type(template, FUNCTION)
    if not functions:
        return
    configuration = template["Resources"]["Configuration"]["Properties"]
    given = [body["Properties"] for body in functions.values()]
    deciding = {name for each in given for name in conditions_behind(template, each.get("Environment"))}
    read = {*references([template["Globals"], given, [template["Conditions"][name] for name in deciding]])}
    # These are not part of a version.
    needed = read & template["Parameters"].keys() - {"CanaryDeployment", "ReserveShardScalerConcurrency"}
    if lacking := sorted(needed - {*references(configuration["Of"])}):
        yield ("Resources", "Configuration"), f"Of lacks {lacking}: a change of it would publish no version"
    hashed, deletes = {"Fn::GetAtt": ["Configuration", "Sha256"]}, template["Globals"]["Function"]
    for name, body in functions.items():
        place, properties = ("Resources", name), body["Properties"]
        described = text_of(properties["Description"]).replace("${Configuration.Sha256}", "0" * 64)
        is_named = properties.get("VersionDescription") == hashed and "0" * 64 in described
        if not is_named or len(described) > 256:
            yield place, f"the version or the description of {name} lacks the hash of Configuration, or is too long"
        publishes = properties.get("AutoPublishAliasAllProperties") is True
        if not publishes or deletes.get("VersionDeletionPolicy") != "Delete":
            yield place, f"{name} is not published with every change, or keeps its old versions"


@rule("E9005", "Every setting has an effect, and is passed on under its own name")
def settings(template, path):
    if "Settings" not in template.get("Mappings", {}):
        return
    rows, effective = template["Mappings"]["Settings"], set()
    for name, body in of_type(template, NESTED).items():
        handed = body["Properties"].get("Parameters", {})
        declared = load(path.parent / body["Properties"]["Location"])["Parameters"]
        if other := declared.keys() ^ handed.keys():
            yield ("Resources", name), f"{name} and its template differ in the parameters {', '.join(sorted(other))}"
        for key in handed.keys() & rows.keys():
            decided = name != "CheckedSettings" and "Fn::If" in handed[key]
            if handed[key] != {"Fn::FindInMap": ["Settings", key, {"Ref": "Profile"}]} and not decided:
                yield ("Resources", name), f"{name} receives {handed[key]} as {key}"
        if name != "CheckedSettings":
            effective |= {each[1] for each in inner(handed, "Fn::FindInMap")}
    others = [template["Conditions"], [body for body in template["Resources"].values() if body["Type"] != NESTED]]
    effective |= {each[1] for each in inner(others, "Fn::FindInMap")}
    # ApiOpenToEveryone is only a confirmation.
    for name in rows.keys() - effective - {"ApiOpenToEveryone"}:
        yield ("Mappings", "Settings", name), f"{name} has no effect"
    # The default throttle quota of an account in the regions with the lowest, for all of its APIs.
    for name, most in (("ApiRateLimit", 2500), ("ApiBurstLimit", 1250)):
        if any(int(value) > most for value in rows[name].values()):
            yield ("Mappings", "Settings", name), f"{name} exceeds the quota of some regions, {most}"


# --- Names and prices that the code has, too.


@rule("E9006", "The functions write the metrics that alarms and dashboard show")
def metrics(template, _):
    [namespace] = re.findall(r'NAMESPACE: &str = "(\w+)"', code("functions/api/src/start.rs"))
    looked_at = {each["MetricName"] for each in inner(template, "Properties") if each.get("Namespace") == namespace}
    for body in of_type(template, "AWS::CloudWatch::Dashboard").values():
        looked_at |= set(re.findall(rf'\["{namespace}","(\w+)"', text_of(body["Properties"]["DashboardBody"])))
    if other := looked_at - metrics_written():
        yield ("Resources",), f"no function writes {', '.join(sorted(other))}"
    # A service that uses the crate may have metrics of the same names.
    if bare := {each for each in metrics_written("shared/src") if not each.startswith("Sharding")}:
        yield ("Resources",), f"metrics of the crate without the prefix Sharding: {', '.join(sorted(bare))}"


@rule("E9007", "The prices that texts name are those of the adviser")
def prices(template, _):
    if "Settings" not in template.get("Mappings", {}):
        return
    listed = json.loads(code("adviser/prices.json"))
    known = {name: each["tiers"][0]["usd"] for name, each in listed.items() if "tiers" in each}
    unit, rows = known["dynamodb_warm_write_units"], template["Mappings"]["Settings"]
    peak = f"about ${1000 * unit:.2f} per 1,000 units above 4,000 (${16_000 * unit:.0f} for 20,000)"
    if peak not in template["Parameters"]["ExpectedPeakWriteUnits"]["Description"]:
        yield ("Parameters", "ExpectedPeakWriteUnits"), f"a peak costs {peak}"
    for kind, profile in itertools.product(("Write", "Read"), ("standard", "development")):
        units = int(rows[f"OnDemandMax{kind}Units"][profile])
        a_day = f"${units * 86_400 * known[f'dynamodb_{kind.lower()}_request_units'] / 1e6:,.0f}"
        for document in ("SECURITY.md", "docs/costs.md"):
            if a_day not in code(document):
                yield ("Mappings", "Settings"), f"{document} does not say that {units} {kind} units cost {a_day} a day"


@cache
def metrics_written(*folders):
    """Returns the metrics that the functions write: `counter!(WRITES)` with the constant's text, or
    `counter!("Writes")`."""
    sources = [path for folder in folders or ("shared/src", "functions") for path in (ROOT / folder).rglob("*.rs")]
    codes = [path.read_text(encoding="utf-8").split("#[cfg(test)]")[0] for path in sources]
    constant = re.compile(r'const ([A-Z_]+): &str =\s*"(\w+)"')
    everywhere = {name: text for each in codes for name, text in constant.findall(each)}
    written = re.compile(r'\b(?:counter|gauge|histogram)!\(\s*(?:(?:\w+::)*(\w+)|"(\w+)")')
    # A constant of the same file has precedence, because other files may have one of the same name.
    return {
        text or (everywhere | dict(constant.findall(each)))[name]
        for each in codes
        for name, text in written.findall(each)
    }
