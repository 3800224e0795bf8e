"""Converts a resource's properties for the API of its service.

CloudFormation accepts numbers and booleans as text, but the services do not. botocore's description
of the service converts them, and rejects what the service would reject: an unknown name, a missing
member, a number out of range.
"""

from functools import cache

import botocore.session
from botocore.validate import ParamValidator

_SESSION = botocore.session.get_session()


class WrongProperties(ValueError):
    """Properties for which the service would return a ValidationException."""


@cache
def _model(service):
    return _SESSION.get_service_model(service)


def typed(service, operation, properties):
    """Returns the request of `operation` of `service` for a resource's properties."""
    shape = _model(service).operation_model(operation).input_shape
    request = _convert(shape, properties)
    report = ParamValidator().validate(request, shape)
    if report.has_errors():
        raise WrongProperties(f"{operation}: {report.generate_report()}")
    return request


def _convert(shape, value):
    kind = shape.type_name
    if kind == "structure" and isinstance(value, dict):
        return {name: _convert(shape.members[name], each) if name in shape.members else each for name, each in value.items()}
    if kind == "list" and isinstance(value, list):
        return [_convert(shape.member, each) for each in value]
    if kind == "map" and isinstance(value, dict):
        return {name: _convert(shape.value, each) for name, each in value.items()}
    if kind == "string" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        try:
            if kind in ("integer", "long"):
                return int(value)
            if kind in ("float", "double"):
                return float(value)
        except ValueError as error:
            raise WrongProperties(f"{value!r} is no {kind}") from error
        if kind == "boolean":
            if value not in ("true", "false"):
                raise WrongProperties(f"{value!r} is no boolean")
            return value == "true"
    return value
