"""Additions to ministack for CloudFormation: see README.md beside this file."""

import contextvars
import copy
import logging
import secrets
import time

from ministack.core.responses import get_account_id, get_region, new_uuid
from ministack.services import apigateway, cloudwatch, cloudwatch_logs, dynamodb, lambda_svc
from ministack.services import cloudformation as services
from ministack.services.cloudformation import custom_resource, engine, provisioners, stacks
from samtranslator.translator.transform import transform as sam
from typed import typed

HANDLERS = provisioners._RESOURCE_HANDLERS
# The length of a minute of traffic shifting here, in seconds.
MINUTE = 0.5
# The first part of the traffic that a deployment configuration shifts, and the minutes until the
# rest.
_SHIFTS = {"AllAtOnce": (1.0, 0)} | {
    f"{kind}{percent}PercentEvery{minutes}Minute{'s' if minutes > 1 else ''}"
    if kind == "Linear"
    else f"{kind}{percent}Percent{minutes}Minutes": (percent / 100, minutes)
    for kind, percent, times in (("Canary", 10, (5, 10, 15, 30)), ("Linear", 10, (1, 2, 3, 10)))
    for minutes in times
}

_log = logging.getLogger("stacks")


class Failures:
    """Makes the creation or the update of a resource fail, or, with `afterwards`, only the response
    to CloudFormation."""

    def __init__(self):
        self._wanted = {}

    def of(self, logical_id, when="create"):
        self._wanted[logical_id] = when

    def none(self):
        self._wanted.clear()

    def check(self, logical_id, when):
        if self._wanted.get(logical_id) == when:
            raise ValueError(f"made to fail: {when} of {logical_id}")


FAILURES = Failures()
# The traffic shifts: the alias, the old version, the new version, and the outcome.
DEPLOYMENTS = []


# --- Nested stacks: their templates are transformed, too, a failed child leaves nothing, and
# deletion policies apply.

# The parameters of the present nested template.
_nested = contextvars.ContextVar("nested", default=None)


def _given(properties):
    return [{"Key": name, "Value": str(value)} for name, value in (properties.get("Parameters") or {}).items()]


def _nested_create(original):
    def create(logical_id, properties, stack_name):
        before = set(services._stacks)
        token = _nested.set(_given(properties))
        try:
            return original(logical_id, properties, stack_name)
        except Exception:
            for child in set(services._stacks) - before:
                _delete_child(services._stacks[child], child, failed=True)
            raise
        finally:
            _nested.reset(token)

    return create


def _nested_update(original):
    def update(physical_id, old, new, stack_name):
        token = _nested.set(_given(new))
        try:
            return original(physical_id, old, new, stack_name)
        finally:
            _nested.reset(token)

    return update


def _nested_delete(physical_id, _):
    name = provisioners._nested_stack_lookup_name(physical_id)
    if name in services._stacks:
        _delete_child(services._stacks[name], name, failed=False)


def _delete_child(child, name, failed):
    definitions = child["_template"].get("Resources", {})
    resources = child["_resources"]
    left = []
    for logical_id in reversed(engine._topological_sort(definitions, child["_conditions"])):
        resource = resources.get(logical_id)
        if resource is None:
            continue
        policy = definitions[logical_id].get("DeletionPolicy", "Delete")
        if policy == "Retain" or (policy == "RetainExceptOnCreate" and not failed):
            continue
        try:
            provisioners._delete_resource(
                resource["ResourceType"], resource["PhysicalResourceId"], resource.get("Properties", {}), name, logical_id
            )
        except Exception as error:
            left.append(f"{logical_id}: {error}")
    child["StackStatus"] = "DELETE_COMPLETE"
    child["_resources"] = {}
    if left:
        raise ValueError(f"the nested stack {name} could not be deleted: {'; '.join(left)}")


def _parse(original):
    def parse(body):
        template, given = original(body), _nested.get()
        if given is None:
            return template
        template = engine._apply_transforms(template, given)
        parameters = engine._resolve_parameters(template, given)
        # Includes its rules. ministack evaluates only those of the root template.
        engine.validate_template_support(template, engine._evaluate_conditions(template, parameters), parameters)
        return template

    return parse


def transformed(template, given, previous=None):
    """Returns a template after SAM's transform, which may depend on a parameter. ministack passes no
    values on."""
    if engine._SAM_TRANSFORM not in engine.declared_transforms(template):
        return template
    values = engine._transform_parameters(template, given, previous)
    return sam(copy.deepcopy(template), values, engine._NO_IAM_POLICY_LOADER)


def _transforming(original):
    def transform(template, given=None, previous=None):
        return prepared(original(transformed(template, given, previous), given, previous))

    return transform


def prepared(template):
    """Moves the traffic shifting of an alias to its properties, where its handler finds it."""
    for resource in (template.get("Resources") or {}).values():
        if isinstance(resource, dict) and resource.get("Type") == "AWS::Lambda::Alias" and "UpdatePolicy" in resource:
            resource["Properties"]["UpdatePolicy"] = resource.pop("UpdatePolicy")
    return template


# --- Conditions that depend on a mapping. ministack uses the name of the function instead of its
# value.


_conditions = engine._evaluate_conditions


def conditions(template, parameters):
    mappings = template.get("Mappings", {})

    def given(name):
        return parameters[name["Ref"]]["Value"] if isinstance(name, dict) else name

    def resolve(node):
        if isinstance(node, list):
            return [resolve(each) for each in node]
        if not isinstance(node, dict):
            return node
        if "Fn::FindInMap" in node:
            return engine.find_in_map(node["Fn::FindInMap"], mappings, given)
        return {name: resolve(each) for name, each in node.items()}

    return _conditions({**template, "Conditions": resolve(template.get("Conditions", {}))}, parameters)


# --- Custom resources: after a failed creation, CloudFormation sends a deletion.


def _undone(original):
    def create(logical_id, properties, stack_name, kind="AWS::CloudFormation::CustomResource"):
        try:
            made = original(logical_id, properties, stack_name, kind)
            FAILURES.check(logical_id, "afterwards")
            return made
        except (RuntimeError, TimeoutError, ValueError):
            # The ID that CloudFormation makes up if it received none.
            name = _NAMES.pop(logical_id, None) or f"{stack_name}-{logical_id}-{secrets.token_hex(6).upper()}"
            provisioners._custom_resource_delete(name, properties, stack_name, logical_id, kind)
            raise

    return create


# The IDs in the responses of failed custom resources.
_NAMES = {}


def _noted(original):
    def deliver(token, response):
        if response.get("Status") == "FAILED":
            _NAMES[response.get("LogicalResourceId")] = response.get("PhysicalResourceId")
        return original(token, response)

    return deliver


# --- Aliases behind CodeDeploy.


def _shift(original):
    def update(physical_id, old, new, stack_name, logical_id=None):
        old, new = dict(old), dict(new)
        old.pop("UpdatePolicy", None)
        policy = (new.pop("UpdatePolicy", None) or {}).get("CodeDeployLambdaAliasUpdate")
        before, after = old.get("FunctionVersion"), new.get("FunctionVersion")
        if policy and before != after:
            _deploy(physical_id, policy, before, after)
        return original(physical_id, old, new, stack_name, logical_id)

    return update


def _deploy(alias_arn, policy, before, after):
    group = _GROUPS[policy["DeploymentGroupName"]]
    config = group["DeploymentConfigName"].removeprefix("CodeDeployDefault.Lambda")
    share, minutes = _SHIFTS[config]
    function_name, alias_name = alias_arn.split(":function:")[1].split(":")
    alias = lambda_svc._functions[function_name]["aliases"][alias_name]
    if share < 1:
        alias["RoutingConfig"] = {"AdditionalVersionWeights": {after: share}}
    until = time.monotonic() + minutes * MINUTE
    ended = "Succeeded"
    while time.monotonic() < until:
        breached = [name for name in group["Alarms"] if cloudwatch._alarms[name]["StateValue"] == "ALARM"]
        if breached:
            ended = f"Stopped by {', '.join(breached)}"
            break
        time.sleep(0.02)
    alias.pop("RoutingConfig", None)
    DEPLOYMENTS.append((alias_arn, before, after, ended))
    if ended != "Succeeded":
        raise ValueError(f"Deployment of {alias_arn} stopped and rolled back: {ended}")


_GROUPS = {}
_APPLICATIONS = {}


def _application_create(logical_id, properties, stack_name):
    name = properties.get("ApplicationName") or f"{stack_name}-{logical_id}-{secrets.token_hex(6).upper()}"
    typed("codedeploy", "CreateApplication", {"applicationName": name, "computePlatform": properties["ComputePlatform"]})
    _APPLICATIONS[name] = properties
    return name, {}


def _group_properties(properties):
    if properties["ApplicationName"] not in _APPLICATIONS:
        raise ValueError(f"unknown application {properties['ApplicationName']}")
    alarms = properties.get("AlarmConfiguration") or {}
    return {
        "DeploymentConfigName": properties["DeploymentConfigName"],
        "Alarms": [each["Name"] for each in alarms.get("Alarms", [])],
        "ServiceRoleArn": properties["ServiceRoleArn"],
    }


def _group_create(logical_id, properties, stack_name):
    name = properties.get("DeploymentGroupName") or f"{stack_name}-{logical_id}-{secrets.token_hex(6).upper()}"
    _GROUPS[name] = _group_properties(properties)
    return name, {}


def _group_update(physical_id, _, new, __):
    _GROUPS[physical_id] = _group_properties(new)
    return physical_id, {}


# --- Application Auto Scaling.

TARGETS = {}
POLICIES = {}


def _target_create(_, properties, __):
    properties = typed("application-autoscaling", "RegisterScalableTarget", properties)
    name = properties["ResourceId"].removeprefix("table/").split("/")[0]
    if name not in dynamodb._tables:
        raise ValueError(f"there is no table {name}")
    identity = "|".join(properties[field] for field in ("ResourceId", "ScalableDimension", "ServiceNamespace"))
    TARGETS[identity] = properties
    return identity, {}


def _target_delete(physical_id, _):
    TARGETS.pop(physical_id, None)


def _policy_create(_, properties, __):
    properties = copy.deepcopy(properties)
    target = properties.pop("ScalingTargetId")
    if target not in TARGETS:
        raise ValueError(f"there is no scalable target {target}")
    resource, dimension, namespace = target.split("|")
    request = {**properties, "ResourceId": resource, "ScalableDimension": dimension, "ServiceNamespace": namespace}
    typed("application-autoscaling", "PutScalingPolicy", request)
    owner = f"{get_region()}:{get_account_id()}"
    arn = f"arn:aws:autoscaling:{owner}:scalingPolicy:{new_uuid()}:resource/{namespace}/{resource}:policyName/{properties['PolicyName']}"
    POLICIES[arn] = target
    return arn, {}


def _policy_delete(physical_id, _):
    POLICIES.pop(physical_id, None)


# --- Alarms with metric math, and resources that must not exist already.


def _alarm_create(original):
    def create(logical_id, properties, stack_name):
        name = properties.get("AlarmName") or f"{stack_name}-{logical_id}-{secrets.token_hex(6).upper()}"
        if name in cloudwatch._alarms:
            raise ValueError(f"the alarm {name} already exists")
        return _alarm_put(original, logical_id, {**properties, "AlarmName": name}, stack_name)

    return create


def _alarm_update(original):
    def update(physical_id, old, new, stack_name, logical_id=None):
        if old.get("AlarmName") != new.get("AlarmName"):
            made = HANDLERS["AWS::CloudWatch::Alarm"]["create"](logical_id, new, stack_name)
            provisioners._delete_predecessor(provisioners._cw_metric_alarm_delete, physical_id, old)
            return made
        return _alarm_put(original, logical_id, {**new, "AlarmName": physical_id}, stack_name)

    return update


def _alarm_put(original, logical_id, properties, stack_name):
    properties = typed("cloudwatch", "PutMetricAlarm", properties)
    if not properties.get("Metrics"):
        return original(logical_id, properties, stack_name)
    stood_in = {key: value for key, value in properties.items() if key != "Metrics"}
    made = original(logical_id, {**stood_in, "MetricName": "metric math", "Namespace": "none"}, stack_name)
    alarm = cloudwatch._alarms[properties["AlarmName"]]
    alarm["Metrics"] = properties["Metrics"]
    alarm["MetricName"] = alarm["Namespace"] = None
    return made


def _group_of_logs(original):
    def create(logical_id, properties, stack_name):
        name = properties.get("LogGroupName")
        if name in cloudwatch_logs._log_groups:
            raise ValueError(f"Resource of type 'AWS::Logs::LogGroup' with identifier '{name}' already exists.")
        return original(logical_id, properties, stack_name)

    return create


# --- HTTP APIs by their OpenAPI document.


def _api_create(original):
    def create(logical_id, properties, stack_name):
        properties = dict(properties)
        body = properties.pop("Body", None)
        if body is None:
            return original(logical_id, properties, stack_name)
        properties["Name"] = body["info"]["title"]
        if cors := body.get("x-amazon-apigateway-cors"):
            properties["CorsConfiguration"] = cors
        identity, attributes = original(logical_id, properties, stack_name)
        _import_body(identity, body)
        return identity, attributes

    return create


def _api_update(original):
    def update(physical_id, old, new, stack_name, logical_id=None):
        old, new = dict(old), dict(new)
        body, before = new.pop("Body", None), old.pop("Body", None)
        if body is None:
            return original(physical_id, old, new, stack_name, logical_id)
        new["Name"] = old["Name"] = body["info"]["title"]
        if cors := body.get("x-amazon-apigateway-cors"):
            new["CorsConfiguration"] = cors
        made = original(physical_id, old, new, stack_name, logical_id)
        if body != before:
            _import_body(physical_id, body)
        return made

    return update


def _import_body(api, body):
    """Creates the routes of a document, as `ReimportApi` does."""
    routes, integrations, authorizers = {}, {}, {}
    schemes = (body.get("components") or {}).get("securitySchemes") or {}
    for name, scheme in schemes.items():
        if authorizer := scheme.get("x-amazon-apigateway-authorizer"):
            identity = new_uuid()[:8]
            authorizers[identity] = {
                "authorizerId": identity,
                "name": name,
                "authorizerType": authorizer["type"].upper(),
                "identitySource": [authorizer["identitySource"]],
                "jwtConfiguration": authorizer["jwtConfiguration"],
            }
    by_name = {each["name"]: each["authorizerId"] for each in authorizers.values()}
    for path, methods in body["paths"].items():
        for method, operation in methods.items():
            described = operation["x-amazon-apigateway-integration"]
            if described["type"] != "aws_proxy":
                raise ValueError(f"the integration of {method} {path} is {described['type']}; only aws_proxy is emulated")
            integration, route = new_uuid()[:8], new_uuid()[:8]
            integrations[integration] = {
                "integrationId": integration,
                "integrationType": "AWS_PROXY",
                "integrationUri": described["uri"],
                "integrationMethod": described["httpMethod"],
                "payloadFormatVersion": described["payloadFormatVersion"],
                "timeoutInMillis": 30_000,
                "connectionType": "INTERNET",
            }
            routes[route] = {
                "routeId": route,
                "routeKey": f"{method.upper()} {path}",
                "target": f"integrations/{integration}",
                "apiKeyRequired": False,
                **_authorization(operation, schemes, by_name),
            }
    apigateway._routes[api], apigateway._integrations[api], apigateway._authorizers[api] = routes, integrations, authorizers


def _authorization(operation, schemes, authorizers):
    security = operation.get("security")
    if not security:
        return {"authorizationType": "NONE"}
    [name] = security[0]
    if name in authorizers:
        return {"authorizationType": "JWT", "authorizerId": authorizers[name]}
    if schemes[name].get("x-amazon-apigateway-authtype") != "awsSigv4":
        raise ValueError(f"the security scheme {name} is not emulated")
    return {"authorizationType": "AWS_IAM"}


# --- Installation.


def install():
    """Installs this in the emulator of this process."""
    engine._evaluate_conditions = conditions
    engine._parse_template = _parse(engine._parse_template)
    engine._apply_transforms = _transforming(engine._apply_transforms)
    from ministack.services.cloudformation import changesets, handlers

    for module in (changesets, handlers, stacks):
        for name in ("_parse_template", "_apply_transforms", "_evaluate_conditions"):
            if hasattr(module, name):
                setattr(module, name, getattr(engine, name))

    nested, api, alarm = HANDLERS["AWS::CloudFormation::Stack"], HANDLERS["AWS::ApiGatewayV2::Api"], HANDLERS["AWS::CloudWatch::Alarm"]
    nested |= {"create": _nested_create(nested["create"]), "update": _nested_update(nested["update"]), "delete": _nested_delete}
    api |= {"create": _api_create(api["create"]), "update": _api_update(api["update"])}
    put = provisioners._cw_metric_alarm_create
    alarm |= {"create": _alarm_create(put), "update": _alarm_update(put)}
    logs = HANDLERS["AWS::Logs::LogGroup"]
    logs["create"] = _group_of_logs(logs["create"])
    alias = HANDLERS["AWS::Lambda::Alias"]
    alias["update"] = _shift(alias["update"])
    HANDLERS["AWS::CodeDeploy::Application"] = {
        "create": _application_create,
        "update": lambda physical_id, *_: (physical_id, {}),
        "delete": lambda physical_id, _: _APPLICATIONS.pop(physical_id, None),
    }
    HANDLERS["AWS::CodeDeploy::DeploymentGroup"] = {
        "create": _group_create,
        "update": _group_update,
        "delete": lambda physical_id, _: _GROUPS.pop(physical_id, None),
    }
    HANDLERS["AWS::ApplicationAutoScaling::ScalableTarget"] = {
        "create": _target_create,
        "update": lambda physical_id, _, new, __: _target_create(physical_id, new, None),
        "delete": _target_delete,
    }
    HANDLERS["AWS::ApplicationAutoScaling::ScalingPolicy"] = {
        "create": _policy_create,
        "update": lambda physical_id, _, new, __: (physical_id, {}),
        "delete": _policy_delete,
    }

    blocking = stacks._runs_on_worker_thread
    stacks._runs_on_worker_thread = lambda kind: blocking(kind) or kind == "AWS::Lambda::Alias"

    provisioners._custom_resource_create = _undone(provisioners._custom_resource_create)
    custom_resource.deliver_response = _noted(custom_resource.deliver_response)

    provision, update = provisioners._provision_resource, provisioners._update_resource

    def provisioned(kind, logical_id, properties, stack_name):
        FAILURES.check(logical_id, "create")
        made = provision(kind, logical_id, properties, stack_name)
        try:
            FAILURES.check(logical_id, "afterwards")
        except ValueError:
            provisioners._delete_resource(kind, made[0], properties, stack_name, logical_id)
            raise
        return made

    def updated(kind, physical_id, old, new, stack_name, logical_id=None, attributes=None):
        if old == new:
            # In a nested stack, ministack loses the attributes of unchanged resources.
            known = services._stacks.get(stack_name, {}).get("_resources", {}).get(logical_id, {})
            return physical_id, attributes or known.get("Attributes") or {}
        FAILURES.check(logical_id, "update")
        return update(kind, physical_id, old, new, stack_name, logical_id, attributes)

    for module in (provisioners, stacks):
        module._provision_resource, module._update_resource = provisioned, updated
