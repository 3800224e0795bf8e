"""Runs schemathesis against a local edition: the responses must match functions/api/openapi.yaml.

Usage: openapi.py LOCAL_BINARY

schemathesis also loads this file, for its hook and its checks.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import schemathesis
import yaml
from local_edition import Edition
from openapi_spec_validator import validate

ROOT = pathlib.Path(__file__).resolve().parent.parent
DESCRIPTION = ROOT / "functions" / "api" / "openapi.yaml"
# Names that no attribute of an item may have in the table of this check.
RESERVED = re.compile("_sh:|(partition_key|sort_key)$")
SEED = "20140709"
# Requests to each operation.
MOST_EXAMPLES = "100"

CONFIG = """
[generation]
database = "none"

[output.sanitization]
enabled = false

[phases.coverage]
generate-duplicate-query-parameters = true

[checks]
# A 503 is part of the contract, and status_code_conformance checks where. A 500 is described, but
# is always a finding.
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 503]
# Narrower than by default: a 404 would mean that a wrong request reached the table.
negative_data_rejection.expected-statuses = [400, 413, 415]
# 400 is for refused_only_for_what_a_schema_cannot_say, 304 and 412 for conditions that do not hold,
# 409 for an addition to an attribute of another type.
positive_data_acceptance.expected-statuses = ["2xx", 304, 400, 404, 409, 412]
"""

TOO_MANY_DIGITS = re.compile(r"[0-9]{39}")
MOST_FIELDS = 100


def excludes_itself(query):
    """Returns whether parameters conflict, or a list of fields is wrong although it matches the
    pattern."""
    fields = str(query["fields"]).split(",") if "fields" in query else []
    return (
        ("prefix" in query and ("from" in query or "to" in query))
        or (fields and query.get("count") in (True, "true"))
        or len(set(fields)) < len(fields)
        or len(fields) > MOST_FIELDS
        or any(map(RESERVED.match, fields))
    )


# Reasons to reject a request that satisfies the schemas: lengths in bytes, digits, and conflicts
# between values.
BEYOND_SCHEMAS = {
    "invalid_partition_key": lambda sent, _: not sent.isascii(),
    "invalid_sort_key": lambda sent, _: not sent.isascii() or TOO_MANY_DIGITS.search(sent),
    "invalid_number": lambda sent, _: TOO_MANY_DIGITS.search(sent),
    "repeated_key": lambda sent, _: "items" in sent,
    "invalid_cursor": lambda _, query: "cursor" in query,
    "invalid_range": lambda _, query: "from" in query and "to" in query,
    "invalid_parameter": lambda _, query: excludes_itself(query),
    # A patch with other keys than the item's.
    "immutable_key": lambda sent, _: "partition_key" in sent or "sort_key" in sent,
    # An Idempotency-Key together with an item that has its own sort key.
    "invalid_header": lambda sent, _: "sort_key" in sent,
}


@schemathesis.hook
def map_case(context, case):
    """Removes parts of a request that would make the API reject most requests. No test data can
    contain a valid cursor or an item's tag. A prefix conflicts with a range, fields with a count,
    and an idempotency key with a sort key."""
    if not case.meta or not case.meta.generation.mode.is_positive:
        return case
    if case.operation.path == "/items" and case.method == "GET":
        case.query.pop("cursor", None)
        if "prefix" in case.query:
            case.query.pop("from", None)
            case.query.pop("to", None)
        if case.query.get("count") in (True, "true"):
            case.query.pop("fields", None)
    if case.method == "POST" and "sort_key" in str(case.body):
        case.headers.pop("Idempotency-Key", None)
    # Other keys than those of the query are an error that the schema cannot express.
    if case.method == "PATCH" and isinstance(case.body, dict):
        case.body.pop("partition_key", None)
        case.body.pop("sort_key", None)
    # The examples and the coverage phase contain tags.
    if case.meta.phase.name == "fuzzing" and case.headers.get("If-Match") != "*":
        case.headers.pop("If-Match", None)
    return case


@schemathesis.check
def refused_only_for_what_a_schema_cannot_say(ctx, response, case):
    if case.meta is None or not case.meta.generation.mode.is_positive or response.status_code != 400:
        return
    code = response.json()["code"]
    excuse = BEYOND_SCHEMAS.get(code, lambda sent, query: False)
    assert excuse(f"{case.query} {case.body}", case.query), (
        f"the request matches the description, but is rejected as {code}"
    )


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    description = yaml.safe_load(DESCRIPTION.read_text(encoding="utf-8"))
    validate(description)
    print(f"{DESCRIPTION.relative_to(ROOT)} is OpenAPI {description['openapi']}", flush=True)
    # The local edition checks no signatures, and its table has strings as sort keys.
    del description["security"]
    description["components"]["schemas"]["SortKey"] = {"$ref": "#/components/schemas/SortKeyString"}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        narrowed, config = folder / "openapi.yaml", folder / "schemathesis.toml"
        narrowed.write_text(yaml.safe_dump(description, sort_keys=False))
        config.write_text(CONFIG)
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", config, "--no-color", "run", narrowed]
        command += ["--seed", SEED, "--max-examples", MOST_EXAMPLES, "--workers", "1", "--continue-on-failure"]
        variables = {
            "SCHEMATHESIS_HOOKS": pathlib.Path(__file__).stem,
            "PYTHONPATH": str(ROOT / "checks"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with Edition(binary, folder / "edition.log") as edition:
            command += ["--request-timeout", "15", "--url", edition.url]
            return subprocess.run(command, cwd=folder, env=os.environ | variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
