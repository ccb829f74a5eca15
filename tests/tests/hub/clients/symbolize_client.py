"""Asks a hub for symbols over gRPC, with messages that grpcio-tools makes of the .proto file.

Usage: symbolize_client.py HOST:PORT TOKEN PROTO BUILDID OFFSET FOLDER. Prints the state, and the
functions at the offset, the innermost first.
"""

import os
import sys

import grpc
from grpc_tools import protoc

place, token, proto, build_id, offset, folder = sys.argv[1:]
directory, name = os.path.split(proto)
made = protoc.main(
    ["protoc", f"-I{directory}", f"--python_out={folder}", f"--grpc_python_out={folder}", name]
)
assert made == 0
sys.path.insert(0, folder)
import symbolize_pb2 as messages  # noqa: E402
import symbolize_pb2_grpc as service  # noqa: E402

stub = service.SymbolServiceStub(grpc.insecure_channel(place))
request = messages.SymbolizeRequest(
    batches=[messages.Batch(build_id=build_id, offsets=[int(offset)])]
)
answer = stub.Symbolize(request, metadata=[("authorization", f"Bearer {token}")], timeout=60)
batch = answer.batches[0]
print(batch.state)
for stack in batch.stacks:
    for frame in answer.stacks[stack].frames:
        print(answer.strings[answer.functions[frame.function].name])
wrong = messages.SymbolizeRequest(batches=[messages.Batch(build_id="XYZ")])
try:
    stub.Symbolize(wrong, metadata=[("authorization", f"Bearer {token}")], timeout=60)
except grpc.RpcError as error:
    print(error.code().name)
