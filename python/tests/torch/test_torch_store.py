"""torch's own backends under `hora run`: rank 0 serves their store at MASTER_PORT, seconds after the launcher has
chosen it."""

from __future__ import annotations

import subprocess
import sys

# Connections whose near ends stay in the kernel's tables for a minute each, a thousand a second.
BUSY = """
import socket, sys, threading, time
at = socket.create_server(("127.0.0.1", 0), backlog=1024)
def serve():
    while True:
        c, _ = at.accept()
        c.recv(1)
        c.close()
threading.Thread(target=serve, daemon=True).start()
began, n = time.monotonic(), 0
print("busy", flush=True)
while True:
    socket.create_connection(at.getsockname()).close()
    n += 1
    ahead = n / 1000 - (time.monotonic() - began)
    if ahead > 0:
        time.sleep(ahead)
"""

GLOO = """
import os, torch, torch.distributed as dist
with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
    lo, hi = map(int, f.read().split())
port = int(os.environ["MASTER_PORT"])
assert not lo <= port <= hi or lo < 5000 and hi > 64535, (lo, port, hi)
dist.init_process_group("gloo")
t = torch.ones(4)
dist.all_reduce(t)
assert t[0] == dist.get_world_size() == 2
dist.destroy_process_group()
"""


def test_gloo_meets_beside_a_thousand_connections_a_second(launcher, tmp_path):
    train = tmp_path / "train.py"
    train.write_text(GLOO)
    busy = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True)
    try:
        assert busy.stdout.readline() == "busy\n"
        jobs = [
            subprocess.Popen([launcher, "run", "-np", "2", sys.executable, train], stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        for j in jobs:
            said = j.communicate(timeout=120)[1]
            assert j.returncode == 0, said
            assert "has not joined" not in said, said  # it has met elsewhere
        assert busy.poll() is None
    finally:
        busy.kill()
        busy.wait()
