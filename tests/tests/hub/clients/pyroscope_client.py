"""Profiles itself with pyroscope-io, and sends the profiles to a hub.

Usage: pyroscope_client.py ADDRESS TOKEN SERVICE SECONDS.
"""

import sys
import time

import pyroscope

address, token, service, seconds = sys.argv[1:]
pyroscope.configure(
    application_name=service,
    server_address=address,
    http_headers={"Authorization": f"Bearer {token}"},
    upload_interval=1,
    sample_rate=100,
    tags={"region": "lab"},
)


def spin_for_the_hub(end):
    """Computes until a time."""
    total = 0
    while time.monotonic() < end:
        total += sum(range(1000))
    return total


spin_for_the_hub(time.monotonic() + float(seconds))
pyroscope.shutdown()
