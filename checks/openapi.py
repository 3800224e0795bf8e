"""Runs schemathesis against a local edition, by functions/api/openapi.yaml: each kind of table answers as it is described.

Usage: openapi.py LOCAL_BINARY

schemathesis loads this file, too, for the check that is defined here.
"""

import copy
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import schemathesis
import yaml
from openapi_spec_validator import validate

ROOT = pathlib.Path(__file__).resolve().parent.parent
DESCRIPTION = ROOT / "functions" / "api" / "openapi.yaml"
SEED = "20140709"
START_SECONDS = 30

# The variables of a kind of table, and how many requests each operation gets.
TABLES = {
    "string": ({"SORT_KEY_TYPE": "S", "SHARD_PLACEMENT": "calculated"}, 150),
    "number": ({"SORT_KEY_TYPE": "N", "SHARD_PLACEMENT": "calculated"}, 60),
    "random": ({"SORT_KEY_TYPE": "S", "SHARD_PLACEMENT": "random"}, 30),
}

CONFIG = """
[generation]
database = "none"

[output.sanitization]
enabled = false

[phases.coverage]
generate-duplicate-query-parameters = true

[checks]
# A 503 is part of the contract; status_code_conformance knows where. A 500 is described, and is a finding nevertheless.
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 503]
# Narrower than by default: a 404 would mean that a wrong request was looked up.
negative_data_rejection.expected-statuses = [400, 413, 415]
# 400 is for refused_only_for_what_a_schema_cannot_say.
positive_data_acceptance.expected-statuses = ["2xx", 400, 404, {positive}]
"""

# What makes a request wrong though it satisfies the schemas: lengths in bytes, digits, depth, and how values belong together.
BEYOND_SCHEMAS = {
    "invalid_partition_key": lambda sent: not sent.isascii(),
    "invalid_sort_key": lambda sent: not sent.isascii(),
    "invalid_number": lambda sent: any(character.isdigit() for character in sent),
    "repeated_key": lambda sent: "items" in sent,
    "invalid_cursor": lambda sent: "cursor" in sent,
    "invalid_range": lambda sent: "from" in sent and "to" in sent,
    "invalid_parameter": lambda sent: "prefix" in sent and ("from" in sent or "to" in sent),
}


@schemathesis.check
def refused_only_for_what_a_schema_cannot_say(ctx, response, case):
    if case.meta is None or not case.meta.generation.mode.is_positive or response.status_code != 400:
        return
    code = response.json()["code"]
    excuse = BEYOND_SCHEMAS.get(code, lambda sent: False)
    assert excuse(f"{case.query} {case.body}"), f"the request satisfies the description and is refused as {code}"


def described_for(table, description):
    """The description, narrowed to a kind of table and to what the local edition has."""
    narrowed = copy.deepcopy(description)
    schemas = narrowed["components"]["schemas"]
    # Nothing checks signatures here.
    del narrowed["security"]
    if table == "number":
        schemas["SortKey"] = {"$ref": "#/components/schemas/Number"}
        schemas["SortKeyText"] = {"$ref": "#/components/schemas/Number"}
        schemas["NewItem"]["required"].append("sort_key")
        parameters = narrowed["paths"]["/items"]["get"]["parameters"]
        parameters[:] = [parameter for parameter in parameters if parameter.get("name") != "prefix"]
        without_examples(narrowed)
    else:
        schemas["SortKey"] = {"$ref": "#/components/schemas/SortKeyString"}
    return narrowed


def without_examples(node):
    """They are of string tables."""
    if isinstance(node, dict):
        node.pop("example", None)
        node.pop("examples", None)
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        without_examples(child)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(server, url):
    end = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{url}/items?partition_key=ready", timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"the local edition does not answer at {url}")


def run(table, binary, description, folder):
    variables, examples = TABLES[table]
    print(f"\n-- {table} table", flush=True)
    narrowed = folder / f"{table}.yaml"
    narrowed.write_text(yaml.safe_dump(described_for(table, description), sort_keys=False))
    config = folder / f"{table}.toml"
    config.write_text(CONFIG.format(positive="405" if table == "random" else "412"))
    url = f"http://127.0.0.1:{free_port()}"
    with open(folder / f"{table}.log", "wb") as log:
        server = subprocess.Popen(
            [binary, "serve", "--port", url.rsplit(":", 1)[1], "--dynamodb-port", str(free_port())],
            stdout=log,
            stderr=log,
            env={**os.environ, **variables},
        )
    try:
        wait_for(server, url)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "--no-color", "run"),
                *(str(narrowed), "--url", url, "--seed", SEED, "--max-examples", str(examples)),
                *("--workers", "2", "--continue-on-failure", "--request-timeout", "15"),
            ],
            cwd=folder,
            env={**os.environ, "SCHEMATHESIS_HOOKS": pathlib.Path(__file__).stem, "PYTHONPATH": str(ROOT / "checks")},
            check=False,
        )
    finally:
        server.terminate()
        server.wait()
    return done.returncode == 0


def main():
    description = yaml.safe_load(DESCRIPTION.read_text(encoding="utf-8"))
    validate(description)
    print(f"{DESCRIPTION.relative_to(ROOT)} is OpenAPI {description['openapi']}")
    binary = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        wrong = [table for table in TABLES if not run(table, binary, description, pathlib.Path(folder))]
    print(f"\n{len(TABLES)} kinds of tables, findings in: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
