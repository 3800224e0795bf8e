"""Additions to ministack for CloudFormation: see README.md beside this file."""

import contextvars
import copy
import secrets

from ministack.core.responses import new_uuid
from ministack.services import apigateway
from ministack.services import cloudformation as services
from ministack.services.cloudformation import changesets, engine, handlers, provisioners, stacks
from samtranslator.translator.transform import transform as sam

HANDLERS = provisioners._RESOURCE_HANDLERS
# Resources of services that ministack lacks, by type and ID.
STORED = {kind: {} for kind in ("Application", "DeploymentGroup", "ScalableTarget", "ScalingPolicy")}
# The resources whose creation fails, or, with `afterwards`, only their response to CloudFormation.
FAILING = {}


def _fail(logical_id, when):
    if FAILING.get(logical_id) == when:
        raise ValueError(f"made to fail: {when} of {logical_id}")


# --- The language: SAM's transform with the values of parameters, mappings in conditions.


def transformed(template, given, previous=None):
    """Returns a template after SAM's transform, which may depend on a parameter."""
    if engine._SAM_TRANSFORM not in engine.declared_transforms(template):
        return template
    values = engine._transform_parameters(template, given, previous)
    return sam(copy.deepcopy(template), values, engine._NO_IAM_POLICY_LOADER)


_conditions = engine._evaluate_conditions


def conditions(template, parameters):
    def looked_up(node):
        if isinstance(node, list):
            return [looked_up(each) for each in node]
        if not isinstance(node, dict):
            return node
        if "Fn::FindInMap" in node:
            return engine.find_in_map(node["Fn::FindInMap"], template["Mappings"], value_of)
        return {name: looked_up(each) for name, each in node.items()}

    def value_of(name):
        return parameters[name["Ref"]]["Value"] if isinstance(name, dict) else name

    return _conditions({**template, "Conditions": looked_up(template.get("Conditions", {}))}, parameters)


def _transforming(original):
    def transform(template, given=None, previous=None):
        return original(transformed(template, given, previous), given, previous)

    return transform


# --- Nested stacks: their templates are transformed and their rules evaluated, too, and a failed
# child leaves nothing.

_given = contextvars.ContextVar("given", default=None)


def _nested(original):
    def deploy(logical_id, properties, *rest, **more):
        before = set(services._stacks)
        token = _given.set([{"Key": k, "Value": str(v)} for k, v in (properties.get("Parameters") or {}).items()])
        try:
            return original(logical_id, properties, *rest, **more)
        except Exception:
            for child in set(services._stacks) - before:
                provisioners._cfn_nested_stack_delete(child, {})
            raise
        finally:
            _given.reset(token)

    return deploy


def _parse(original):
    def parse(body):
        template, given = original(body), _given.get()
        if given is None:
            return template
        template = engine._apply_transforms(template, given)
        parameters = engine._resolve_parameters(template, given)
        engine._evaluate_rules(template, parameters, conditions(template, parameters))
        return template

    return parse


# --- Custom resources: after a failed creation, CloudFormation sends a deletion.


def _undone(original):
    def create(logical_id, properties, stack_name, kind="AWS::CloudFormation::CustomResource"):
        try:
            made = original(logical_id, properties, stack_name, kind)
            _fail(logical_id, "afterwards")
            return made
        except (RuntimeError, TimeoutError, ValueError):
            # CloudFormation makes up an ID if it received none.
            name = made_up(stack_name, logical_id)
            provisioners._custom_resource_delete(name, properties, stack_name, logical_id, kind)
            raise

    return create


def made_up(stack_name, logical_id):
    return f"{stack_name}-{logical_id}-{secrets.token_hex(6).upper()}"


# --- CodeDeploy and Application Auto Scaling, which ministack lacks. Neither acts.


def _stored(kind):
    def create(logical_id, properties, stack_name):
        name = made_up(stack_name, logical_id)
        STORED[kind][name] = properties
        return name, {}

    def update(name, _, properties, __):
        STORED[kind][name] = properties
        return name, {}

    return {"create": create, "update": update, "delete": lambda name, _: STORED[kind].pop(name, None)}


# --- Alarms with metric math, which never fire by themselves, and HTTP APIs by their OpenAPI document.


def _with_math(original):
    def record(name, properties):
        if not (metrics := properties.get("Metrics")):
            return original(name, properties)
        simple = {**properties, "Metrics": None, "MetricName": "metric math", "Namespace": "none"}
        return original(name, simple) | {"Metrics": metrics, "MetricName": None, "Namespace": None}

    return record


def _imported(original):
    def create(logical_id, properties, stack_name):
        body = properties["Body"]
        named = {name: value for name, value in properties.items() if name != "Body"} | {"Name": body["info"]["title"]}
        api, attributes = original(logical_id, named, stack_name)
        apigateway._routes[api], apigateway._integrations[api] = {}, {}
        operations = [(path, *each) for path, methods in body["paths"].items() for each in methods.items()]
        for path, method, operation in operations:
            integration, identity = operation["x-amazon-apigateway-integration"], new_uuid()[:8]
            if [*operation["security"][0]] != ["AWS_IAM"]:
                raise ValueError(f"not emulated: {operation['security']}")
            apigateway._integrations[api][identity] = {
                "integrationId": identity,
                "integrationType": "AWS_PROXY",
                "integrationUri": integration["uri"],
                "integrationMethod": integration["httpMethod"],
                "payloadFormatVersion": integration["payloadFormatVersion"],
                "timeoutInMillis": 30_000,
                "connectionType": "INTERNET",
            }
            apigateway._routes[api][identity] = {
                "routeId": identity,
                "routeKey": f"{method.upper()} {path}",
                "target": f"integrations/{identity}",
                "apiKeyRequired": False,
                "authorizationType": "AWS_IAM",
            }
        return api, attributes

    return create


# --- Installation.


def install():
    """Installs this in the emulator of this process."""
    engine._evaluate_conditions = conditions
    engine._parse_template = _parse(engine._parse_template)
    engine._apply_transforms = _transforming(engine._apply_transforms)
    for module in (changesets, handlers, stacks):
        for name in ("_parse_template", "_apply_transforms", "_evaluate_conditions"):
            if hasattr(module, name):
                setattr(module, name, getattr(engine, name))
    provisioners._cfn_nested_stack_deploy = _nested(provisioners._cfn_nested_stack_deploy)
    provisioners._custom_resource_create = _undone(provisioners._custom_resource_create)
    provisioners._cw_metric_alarm_record = _with_math(provisioners._cw_metric_alarm_record)
    for kind in STORED:
        service = "CodeDeploy" if kind in ("Application", "DeploymentGroup") else "ApplicationAutoScaling"
        HANDLERS[f"AWS::{service}::{kind}"] = _stored(kind)
    HANDLERS["AWS::ApiGatewayV2::Api"]["create"] = _imported(HANDLERS["AWS::ApiGatewayV2::Api"]["create"])
    provision, update = provisioners._provision_resource, provisioners._update_resource

    def provisioned(kind, logical_id, properties, stack_name):
        _fail(logical_id, "create")
        return provision(kind, logical_id, properties, stack_name)

    def updated(kind, physical_id, old, new, stack_name, logical_id=None, attributes=None):
        if old == new:
            # In a nested stack, ministack loses the attributes of unchanged resources.
            known = services._stacks.get(stack_name, {}).get("_resources", {}).get(logical_id, {})
            return physical_id, attributes or known.get("Attributes") or {}
        return update(kind, physical_id, old, new, stack_name, logical_id, attributes)

    for module in (provisioners, stacks):
        module._provision_resource, module._update_resource = provisioned, updated
