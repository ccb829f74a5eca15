"""Sends generated requests to a hub, and checks each answer against its OpenAPI document.

Usage: fuzz.py ADDRESS TOKEN EXAMPLES SEED IDENTIFIERS
IDENTIFIERS is JSON: the start of a path, and values for its `{id}`. Those of tokens are the only
ones that requests may revoke.
"""

import json
import re
import sys

import schemathesis
from schemathesis.cli import schemathesis as command

address, token, examples, seed, identifiers = sys.argv[1:]
identifiers = json.loads(identifiers)


@schemathesis.serializer(
    "application/offset+octet-stream", "application/proto", "application/x-protobuf"
)
def part(context, value):
    """Sends a part of an upload or a message as it is."""
    return value if isinstance(value, bytes) else str(value).encode()


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    """Replaces every second identifier by one that exists, so that requests get further."""
    for start, values in identifiers.items():
        if not path_parameters or not context.operation.path.startswith(start):
            continue
        given = str(path_parameters.get("id"))
        choice = sum(given.encode()) % (2 * len(values))
        # The client finds tokens in lists, and would revoke its own.
        is_found = "tokens" in start and re.fullmatch("[0-9a-z]{20}", given)
        if "id" in path_parameters and (choice < len(values) or is_found):
            path_parameters["id"] = values[choice % len(values)]
    return path_parameters


checks = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
]
arguments = ["run", f"{address}/api/openapi.json", "--checks", ",".join(checks)]
arguments += ["--phases", "examples,coverage,fuzzing", "--continue-on-failure", "--no-color"]
arguments += ["--max-examples", examples, "--seed", seed, "--generation-database", "none"]
arguments += ["--warnings", "off", "--request-timeout", "60"]
if token:
    arguments += ["--header", f"Authorization: Bearer {token}"]
command(arguments)
