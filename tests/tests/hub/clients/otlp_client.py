"""Sends a profile to a hub over gRPC, with the messages and the stub of opentelemetry-proto.

Usage: otlp_client.py HOST:PORT TOKEN SERVICE WEIGHT. Prints the status of a call with a wrong token.
"""

import sys
import time

import grpc
from opentelemetry.proto.collector.profiles.v1development import (
    profiles_service_pb2 as service_messages,
    profiles_service_pb2_grpc as service,
)
from opentelemetry.proto.common.v1 import common_pb2 as common
from opentelemetry.proto.profiles.v1development import profiles_pb2 as profiles

place, token, name, weight = sys.argv[1:]
strings = ["", "samples", "count", "main", "otlp_work"]
dictionary = profiles.ProfilesDictionary(
    string_table=strings,
    mapping_table=[profiles.Mapping()],
    link_table=[profiles.Link()],
    attribute_table=[profiles.KeyValueAndUnit()],
    function_table=[profiles.Function()]
    + [profiles.Function(name_strindex=strings.index(text)) for text in ("main", "otlp_work")],
    location_table=[profiles.Location()]
    + [profiles.Location(lines=[profiles.Line(function_index=at)]) for at in (1, 2)],
    # The innermost frame comes first.
    stack_table=[profiles.Stack(), profiles.Stack(location_indices=[2, 1])],
)
now = time.time_ns()
profile = profiles.Profile(
    sample_type=profiles.ValueType(type_strindex=1, unit_strindex=2),
    time_unix_nano=now,
    duration_nano=1_000_000_000,
    samples=[profiles.Sample(stack_index=1, values=[int(weight)], timestamps_unix_nano=[now])],
)
resource = profiles.ResourceProfiles(scope_profiles=[profiles.ScopeProfiles(profiles=[profile])])
resource.resource.attributes.append(
    common.KeyValue(key="service.name", value=common.AnyValue(string_value=name))
)
request = service_messages.ExportProfilesServiceRequest(
    resource_profiles=[resource], dictionary=dictionary
)
stub = service.ProfilesServiceStub(grpc.insecure_channel(place))
answer = stub.Export(request, metadata=[("authorization", f"Bearer {token}")], timeout=60)
assert answer.partial_success.rejected_profiles == 0, answer
try:
    stub.Export(request, metadata=[("authorization", "Bearer wrong")], timeout=60)
except grpc.RpcError as error:
    print(error.code().name)
