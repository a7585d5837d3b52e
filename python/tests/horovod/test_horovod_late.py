"""A rank that comes to its first call long after the others: Horovod waits for it, and so does hora."""

from __future__ import annotations

import os
import time

import hora

LIMIT = 3  # seconds that ranks wait for each other to join


def work_late(of_a_set: bool) -> None:
    import horovod.torch as hvd
    import torch

    hora.init()
    hora.barrier()  # both begin the next life at about the same time
    hora.shutdown()
    os.environ["HORA_START_TIMEOUT"] = f"{LIMIT}s"
    chosen = hvd.ProcessSet([0, 1]) if of_a_set else hvd.global_process_set
    hvd.init(process_sets=[chosen] if of_a_set else None)
    if hvd.rank() == 0:
        time.sleep(2 * LIMIT)
    if chosen.included():
        for _ in range(2):
            assert hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=chosen).tolist() == [chosen.size()] * 2


def work_late_anywhere() -> None:
    work_late(False)


def work_late_in_a_set() -> None:
    work_late(True)


def test_late(ranks):
    ranks(2, work_late_anywhere, timeout=60)


def test_late_in_a_set(ranks):
    ranks(3, work_late_in_a_set, timeout=60)
