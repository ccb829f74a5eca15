"""Uploads a file to a hub with tuspy, in two sessions. The first one is cut within a part.

Usage: tus.py ADDRESS TOKEN FILE KIND SUBJECT SHA256. Prints the offset at which the second session
continued, and the size.
"""

import os
import socket
import sys
import time
import urllib.parse

from tusclient import client
from tusclient.storage import filestorage

address, token, file, kind, subject, sha256 = sys.argv[1:]
size = os.path.getsize(file)
metadata = {"kind": kind, "subject": subject, "sha256": sha256}
storage = filestorage.FileStorage(file + ".tus.json")


def uploader():
    """Returns an uploader of a new client, as after a restart."""
    made = client.TusClient(address + "/api/v1/uploads", {"Authorization": f"Bearer {token}"})
    return made.uploader(
        file,
        chunk_size=max(1, size // 5),
        metadata=metadata,
        store_url=True,
        url_storage=storage,
    )


first = uploader()
first.upload(stop_at=size // 2)
# A hundred bytes of the next part arrive, then the connection ends.
place = urllib.parse.urlsplit(first.url)
with open(file, "rb") as content, socket.create_connection((place.hostname, place.port)) as cut:
    content.seek(first.offset)
    head = [
        f"PATCH {place.path} HTTP/1.1",
        f"Host: {place.netloc}",
        f"Authorization: Bearer {token}",
        "Tus-Resumable: 1.0.0",
        f"Upload-Offset: {first.offset}",
        f"Content-Length: {size - first.offset}",
        "Content-Type: application/offset+octet-stream",
    ]
    cut.sendall("\r\n".join([*head, "", ""]).encode() + content.read(100))
second = uploader()
for _ in range(600):
    # The hub keeps the bytes that arrived, as soon as it notices the end.
    second.offset = second.get_offset()
    if second.offset == first.offset + 100:
        break
    time.sleep(0.05)
offset = second.offset
assert offset == first.offset + 100, (offset, first.offset)
second.upload()
assert second.offset == size, second.offset
print(offset, size)
