"""What the parameters of horovod.spark.run and run_elastic do, on the cluster of the other tests."""

from __future__ import annotations

import io
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import horovod.spark
import pytest
from ends import ended
from sample import longer


def sees(*names):
    """The mean of ones over the ranks, and variables of the worker."""
    import os
    import sys

    import horovod.torch as hvd
    import torch

    hvd.init()
    print("out of", hvd.rank())
    print("err of", hvd.rank(), file=sys.stderr)
    return hvd.allreduce(torch.ones(1), name="x").item(), *(os.environ.get(n) for n in names)


def trains(path, first):
    """Steps until PATH/end is there; each process leaves its id in PATH/SIZE for the sizes of the job that it has
    trained at.

    The hub begins with fewer than `first` where the others come seconds later: such a job ends at once.
    """
    import os
    import time

    import horovod.torch as hvd
    import torch

    hvd.init()
    state = hvd.elastic.TorchState(step=0)

    @hvd.elastic.run
    def work(state):
        if state.step == 0 and hvd.size() < first:
            open(f"{path}/end", "w").close()
        while not os.path.exists(f"{path}/end"):
            hvd.allreduce(torch.ones(1), name="x")
            state.step += 1
            state.commit()
            open(f"{path}/{hvd.size()}/{os.getpid()}", "w").close()
            time.sleep(0.01)
        return hvd.size()

    return work(state)


def agent_of(pid: int) -> int:
    """The agent above a worker: where that is lost its task ends well, so Spark gives the job no other."""
    while pid > 1:
        if b"\0agent\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    raise AssertionError("no agent is above this process")


def trained(folder: Path, n: int) -> list[int]:
    """The workers, when all n have trained at that size; none where the job has ended."""
    limit = time.monotonic() + 90
    while len(there := list((folder / str(n)).iterdir())) < n:
        if (folder / "end").exists():
            return []
        assert time.monotonic() < limit, f"there are not {n} ranks"
        threading.Event().wait(0.02)
    return [int(p.name) for p in there]


def loses(folder: Path, sizes: tuple[int, ...], last: int | None) -> tuple[set[int], float] | None:
    """Take a worker of the job at each size, and end it at the last; who was there, and when the last was taken; None
    of one that began with fewer."""
    seen: set[int] = set()
    try:
        for n in sizes:
            there = trained(folder, n)
            if not there:
                return None
            seen.update(there)
            os.kill(agent_of(there[0]), signal.SIGKILL)
        over = time.monotonic()
        if last is not None:
            trained(folder, last)
            (folder / "end").touch()
        return seen, over
    except BaseException:
        (folder / "end").touch()
        raise


def elastic(path: Path, *sizes: int, last: int | None = None, **given):
    """An elastic job that loses a worker at each size and may end at the last: its results or its error, and seconds
    from the last loss to its end."""
    for attempt in range(5):
        folder = path / str(attempt)
        for n in range(1, sizes[0] + 1):
            (folder / str(n)).mkdir(parents=True)
        ends = threading.Timer(90, (folder / "end").touch)  # a job that ends by no limit
        ends.start()
        with ThreadPoolExecutor(1) as pool:
            losing = pool.submit(loses, folder, sizes, last)
            try:
                got = horovod.spark.run_elastic(
                    trains,
                    (str(folder), sizes[0]),
                    num_proc=sizes[0],
                    stdout=io.StringIO(),
                    stderr=io.StringIO(),
                    **given,
                )
            except RuntimeError as e:
                got = e
            over = time.monotonic()
            ends.cancel()
            (folder / "end").touch()
        if lost := losing.result():
            assert ended(list(lost[0]), 10), "a worker is left"
            return got, over - lost[1]
    raise AssertionError("each job began with fewer workers than were wanted")


def test_the_workers_python_is_the_one_given(whole, tmp_path):
    python = tmp_path / "wrapped python"
    python.write_text(f'#!/bin/sh\nTHROUGH="$0" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert horovod.spark.run(sees, ("THROUGH",), num_proc=2, executable=str(python)) == [(1.0, str(python))] * 2


@longer
def test_a_python_that_is_not_there_is_named(whole, tmp_path):
    with pytest.raises(RuntimeError, match=rf"horovod\.spark\.run: rank \d on \S+: exit code 127: .*{tmp_path}/nosuch"):
        horovod.spark.run(sees, num_proc=2, executable=f"{tmp_path}/nosuch", stderr=io.StringIO())


NETWORK = ("HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


@longer
def test_a_network_interface_reaches_the_workers(whole):
    assert horovod.spark.run(sees, NETWORK, num_proc=2, nics="lo") == [(1.0, "lo", "lo", "lo")] * 2


@longer
@pytest.mark.parametrize("form", [",".join, list], ids=["string", "list"])
def test_network_interfaces_in_their_order(whole, form):
    """Gloo's is that of rank 0's address, which on one machine is the loopback's."""
    other = next((name for _, name in socket.if_nameindex() if name != "lo"), None)
    if other is None:
        pytest.skip("this machine has no network interface but the loopback")
    got = horovod.spark.run_elastic(sees, NETWORK, num_proc=2, min_num_proc=2, nics=form([other, "lo"]))
    assert got == [(1.0, other, f"{other},lo", "lo")] * 2


@pytest.mark.parametrize(
    ("run", "nics"),
    [
        ("run", "nosuch0"),
        pytest.param("run", ["lo", "nosuch0"], marks=longer),
        pytest.param("run_elastic", ["nosuch0"], marks=longer),
    ],
)
def test_a_network_interface_that_no_host_has(whole, run, nics):
    """The job does not wait for its start to be over."""
    began = time.monotonic()
    with pytest.raises(RuntimeError) as e:
        getattr(horovod.spark, run)(sees, num_proc=2, nics=nics, start_timeout=60, stderr=io.StringIO())
    assert time.monotonic() - began < 60
    assert str(e.value).startswith(
        f"horovod.spark.{run}: use network interface nosuch0: this host has none of that name: name one of lo"
    )


@longer
@pytest.mark.parametrize("run", [horovod.spark.run, horovod.spark.run_elastic])
@pytest.mark.parametrize(("verbose", "shown"), [(0, False), (1, False), (2, True)])
def test_verbose_tells_what_the_launcher_does(whole, run, verbose, shown):
    said = io.StringIO()
    assert run(sees, num_proc=2, verbose=verbose, stdout=io.StringIO(), stderr=said) == [(1.0,)] * 2
    lines = said.getvalue().splitlines()
    for rank in range(2):
        assert f"[{rank}]<stderr>:err of {rank}" in lines
        assert any(line.startswith(f"hora: rank {rank} started on ") for line in lines) == shown
        assert any(line.startswith(f"hora: rank {rank} on ") and line.endswith(": finished") for line in lines) == shown


@longer
@pytest.mark.parametrize("run", [horovod.spark.run, horovod.spark.run_elastic])
def test_each_line_begins_with_the_time(whole, run):
    out, err = io.StringIO(), io.StringIO()
    began = int(time.time())
    assert run(sees, num_proc=2, prefix_output_with_timestamp=True, stdout=out, stderr=err) == [(1.0,)] * 2
    over = time.time()
    for stream, said in (("out", out), ("err", err)):
        for rank in range(2):
            end = f"[{rank}]<std{stream}>:{stream} of {rank}"
            (line,) = (line for line in said.getvalue().splitlines() if line.endswith(end))
            assert began <= time.mktime(time.strptime(line.removesuffix(end), "%a %b %d %H:%M:%S %Y")) <= over


@longer
def test_too_few_workers_are_waited_for_as_long_as_elastic_timeout(whole, tmp_path):
    error, waited = elastic(tmp_path, 2, min_num_proc=2, elastic_timeout=4)
    assert isinstance(error, RuntimeError)
    assert str(error).startswith("horovod.spark.run_elastic: 1 worker is left for 4s, and min_num_proc is 2: "), error
    assert 4 <= waited < 3 * 4


@longer
def test_a_job_that_begins_anew_too_often_ends(whole, tmp_path):
    error, _ = elastic(tmp_path, 3, 2, min_num_proc=1, reset_limit=1)
    assert isinstance(error, RuntimeError), error
    assert str(error).endswith(
        "it has begun anew 1 time, which is its limit (--reset-limit): see why workers come and go, or raise it"
    )


@longer
def test_a_job_that_begins_anew_as_often_as_it_may_goes_on(whole, tmp_path):
    assert elastic(tmp_path, 3, 2, last=1, min_num_proc=1, reset_limit=2)[0] == [1]
