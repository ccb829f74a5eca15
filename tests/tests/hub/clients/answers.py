"""Validates answers of a hub against its OpenAPI document, and the document's examples.

Usage: answers.py ADDRESS TOKEN CRASH GROUP. Prints the number of validated answers.
"""

import json
import sys
import urllib.error
import urllib.parse
import urllib.request

import jsonschema_rs

address, token, crash, group = sys.argv[1:]


def request(method, path, body=None):
    """Returns status, media type and content of an answer."""
    data = None if body is None else json.dumps(body).encode()
    made = urllib.request.Request(address + path, data, method=method)
    made.add_header("Authorization", f"Bearer {token}")
    try:
        answer = urllib.request.urlopen(made, timeout=60)
    except urllib.error.HTTPError as error:
        answer = error
    media = (answer.headers["Content-Type"] or "").split(";")[0]
    return answer.status, media, answer.read()


document = json.loads(request("GET", "/api/openapi.json")[2])
schemas = document["components"]["schemas"]


def validate(schema, value, label):
    """Ends the program if a value does not have a schema."""
    whole = {**schema, "components": document["components"]}
    try:
        jsonschema_rs.Draft202012Validator(whole).validate(value)
    except jsonschema_rs.ValidationError as error:
        sys.exit(f"{label}: {error}")


count = 0
for name, schema in schemas.items():
    jsonschema_rs.meta.validate(schema)
    for example in schema.get("examples", []):
        validate(schema, example, f"the example of {name}")
        count += 1


def check(method, path, template, status, body=None):
    """Sends a request, and validates the answer."""
    global count
    found, media, content = request(method, path, body)
    label = f"{method} {path}: {found} {content[:300]}"
    if found != status:
        sys.exit(f"{label}, and not {status}")
    described = document["paths"][template][method.lower()]["responses"][str(status)]
    if "$ref" in described:
        described = document["components"]["responses"][described["$ref"].split("/")[-1]]
    if not content:
        assert "content" not in described, label
    else:
        assert media in described["content"], label
        if media == "application/json":
            validate(described["content"][media]["schema"], json.loads(content), label)
    count += 1
    return json.loads(content) if media == "application/json" else content


report = schemas["CrashReport"]["examples"][0]
check("GET", "/healthz", "/healthz", 200)
check("GET", "/metrics", "/metrics", 200)
check("GET", "/api/openapi.json", "/api/openapi.json", 200)
check("GET", "/api/v1/whoami", "/api/v1/whoami", 200)
receipts = check("POST", "/api/v1/reports", "/api/v1/reports", 200, [report])
assert receipts[0]["wants"]["modules"] == ["a1b2"], receipts
check("POST", "/api/v1/reports", "/api/v1/reports", 400, [{}])
check("POST", "/api/v1/heartbeat", "/api/v1/heartbeat", 204, schemas["Heartbeat"]["examples"][0])
page = check("GET", "/api/v1/groups?limit=1", "/api/v1/groups", 200)
assert "next" in page, page
check("GET", f"/api/v1/groups?after={page['next']}", "/api/v1/groups", 200)
check("GET", "/api/v1/groups?sort=none", "/api/v1/groups", 400)
one = "/api/v1/groups/{id}"
check("GET", f"/api/v1/groups/{group}", one, 200)
check("GET", "/api/v1/groups/none", one, 404)
state = "/api/v1/groups/{id}/state"
check("POST", f"/api/v1/groups/{group}/state", state, 200, {"action": "resolve", "build": "2.0"})
check("POST", f"/api/v1/groups/{group}/state", state, 200, {"action": "archive", "more_reports": 5})
check("POST", f"/api/v1/groups/{group}/state", state, 200, {"action": "reopen"})
check("POST", f"/api/v1/groups/{group}/state", state, 400, {"action": "none"})
crashes = check("GET", "/api/v1/crashes", "/api/v1/crashes", 200)
assert len(crashes) >= 2, crashes
check("GET", "/api/v1/crashes?stored=true", "/api/v1/crashes", 200)
stored = check("GET", f"/api/v1/crashes/{crash}", "/api/v1/crashes/{id}", 200)
assert stored["bundle"] == "stored" and stored["analysis"]["crashed"]["frames"], stored
called = stored["analysis"]["exact_calls"][0]
query = urllib.parse.urlencode({"function": called["function"], "build_id": called["build_id"]})
calls = check("GET", f"/api/v1/exact-calls?{query}", "/api/v1/exact-calls", 200)
assert calls[0]["crash"] == crash and calls[0]["position"] == called["position"], calls
check("GET", "/api/v1/exact-calls", "/api/v1/exact-calls", 400)
check("GET", f"/api/v1/crashes/{report['id']}", "/api/v1/crashes/{id}", 200)
check("GET", "/api/v1/crashes/none", "/api/v1/crashes/{id}", 404)
tokens = "/api/v1/tokens"
made = check("POST", tokens, tokens, 201, schemas["NewToken"]["examples"][0])
check("POST", tokens, tokens, 400, {"name": "", "scopes": []})
check("POST", tokens, tokens, 400, {"name": "a", "scopes": ["read"], "days": 4294967295})
check("GET", tokens, tokens, 200)
check("DELETE", f"{tokens}/{made['id']}", tokens + "/{id}", 204)
check("DELETE", f"{tokens}/none", tokens + "/{id}", 404)
chunks = "/api/0/organizations/{org}/chunk-upload/"
check("GET", "/api/0/organizations/team/chunk-upload/", chunks, 200)
check("POST", "/api/0/organizations/team/chunk-upload/", chunks, 400, {})
difs = "/api/0/projects/{org}/{project}/files/difs/assemble/"
path = "/api/0/projects/team/ledger/files/difs/assemble/"
check("POST", path, difs, 200, schemas["Assembly"]["examples"][0])
check("POST", path, difs, 400, {"x": 1})
print(f"validated {count}")
