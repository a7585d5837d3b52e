"""A job on a pool whose nodes come when it waits, and end when nothing does.

    hora up                                                                 # in another terminal
    hora pool add two --provider local --max 2 --node cores=2,memory=1GiB --idle 1m
    cd examples/72-pools && hora submit --file job.yaml --follow
    hora nodes                                                              # they are there for another minute
    hora artifacts 1 --to results

Four processes on two nodes count primes, each in a quarter of the numbers. The nodes are processes of the server's
machine here; with `--provider command` they are machines that your own commands make, and with `hora pool add lab`
those on which somebody runs what `hora pool token lab` prints. The job file stays the same.
"""

import os
from pathlib import Path

LIMIT = 40_000


def prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


rank, size = int(os.environ["HORA_RANK"]), int(os.environ["HORA_SIZE"])
node = int(os.environ["HORA_CROSS_RANK"])
found = sum(prime(n) for n in range(rank, LIMIT, size))
Path("outputs").mkdir(exist_ok=True)
Path(f"outputs/primes.{rank}").write_text(f"{found}\n")
print(f"rank {rank} on node {node}: {found} primes", flush=True)
