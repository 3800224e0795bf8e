"""Writes the view of functions/api/openapi.yaml for generators of clients: OpenAPI 3.0, as JSON.

Usage: openapi_for_clients.py OUT

The description says exactly what the service accepts. Generators drop a part of it, or make types
of it that no value has. The view has the same operations and shapes, but no limits, which the
service checks. A number is a number, an attribute has any JSON as its value, and every error is a
`Problem`. Requests are not signed: that is a task of the client's HTTP library.
"""

import json
import pathlib
import sys

import yaml

DESCRIPTION = pathlib.Path(__file__).resolve().parent.parent / "functions" / "api" / "openapi.yaml"
PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
# The keywords that give a value its type. A default is not among them, because clients would send
# it, and it may depend on another parameter.
KEPT = {"additionalProperties", "anyOf", "description", "enum", "format", "items", "properties", "required", "type"}
# Schemas that refer to themselves, and so are any JSON in the view.
ANY = {"Change", "Value"}


def shape(schema):
    """Returns the part of a schema that gives a value its type."""
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    if "allOf" in schema or "oneOf" in schema:
        raise ValueError(f"the view of allOf and oneOf is not defined: {schema}")
    if "const" in schema:
        schema = {"type": "string"} | schema
    kept = {key: its for key, its in schema.items() if key in KEPT}
    if isinstance(kept.get("type"), list):
        (kept["type"],) = set(kept["type"]) - {"null"}
        kept["nullable"] = True
    if "type" in kept:
        # It only narrows the type.
        kept.pop("anyOf", None)
    for key in kept.keys() & {"additionalProperties", "items"}:
        kept[key] = shape(kept[key])
    if "properties" in kept:
        kept["properties"] = {name: shape(its) for name, its in kept["properties"].items()}
    if "anyOf" in kept:
        kept["anyOf"] = [shape(its) for its in kept["anyOf"]]
    return kept


def view(node):
    """Returns a part of the description with the shapes of its schemas."""
    if isinstance(node, list):
        return [view(its) for its in node]
    if not isinstance(node, dict):
        return node
    made = {}
    for key, its in node.items():
        if key == "content" and its.keys() == PROBLEM.keys():
            made[key] = PROBLEM
        elif key == "schema":
            made[key] = shape(its)
        elif key in ("example", "examples"):
            made[key] = its
        else:
            made[key] = view(its)
    return made


def for_clients(description):
    components, info = description["components"], description["info"]
    schemas = components.pop("schemas")
    del description["security"], components["securitySchemes"], info["summary"], info["license"]["identifier"]
    made = view(description) | {"openapi": "3.0.3"}
    # Some generators take the first media type's schema for the bodies of all of them.
    for operation in (its for path in made["paths"].values() for its in path.values()):
        bodies = list(operation.get("requestBody", {}).get("content", {}).values())
        if len(bodies) > 1:
            bodies[0]["schema"] = {"anyOf": [body["schema"] for body in bodies]}
    made["components"]["schemas"] = {
        name: {"description": schema["description"]} if name in ANY else shape(schema)
        for name, schema in schemas.items()
        # `Problem` stands for the schemas that narrow it, and `Value` for maps.
        if "allOf" not in schema and name != "Map"
    }
    return made


def main():
    description = yaml.safe_load(DESCRIPTION.read_text(encoding="utf-8"))
    pathlib.Path(sys.argv[1]).write_text(json.dumps(for_clients(description), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    main()
