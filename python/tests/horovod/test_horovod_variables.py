"""Horovod's environment variables, those of docs/horovod.md walked: each is set, and what is said of it is seen."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

LIST = Path(__file__).resolve().parents[3] / "docs" / "horovod.md"
ROWS = re.findall(r"^\| `(_?HOROVOD_[^`]+)` \| (works|no effect|refused) \|", LIST.read_text(encoding="utf-8"), re.M)

# Horovod's variables but for those that steer its build, so that the list cannot shrink unseen.
ALL = """HOSTNAME RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE GLOO_RENDEZVOUS_ADDR GLOO_RENDEZVOUS_PORT CONTROLLER CPU_OPERATIONS
GLOO_IFACE ELASTIC FUSION_THRESHOLD CYCLE_TIME CACHE_CAPACITY HIERARCHICAL_ALLREDUCE HIERARCHICAL_ALLGATHER TORUS_ALLREDUCE
BATCH_D2D_MEMCOPIES NUM_NCCL_STREAMS DISABLE_GROUP_FUSION ENABLE_ASYNC_COMPLETION ENABLE_XLA_OPS DYNAMIC_PROCESS_SETS THREAD_AFFINITY
ADASUM_MPI_CHUNK_SIZE CCL_CACHE MPI_THREADS_DISABLE DISABLE_NVTX_RANGES GLOO_TIMEOUT_SECONDS TIMELINE TIMELINE_MARK_CYCLES
STALL_CHECK_DISABLE STALL_CHECK_TIME_SECONDS STALL_SHUTDOWN_TIME_SECONDS LOG_LEVEL LOG_HIDE_TIME AUTOTUNE AUTOTUNE_LOG
AUTOTUNE_WARMUP_SAMPLES AUTOTUNE_STEPS_PER_SAMPLE AUTOTUNE_BAYES_OPT_MAX_SAMPLES AUTOTUNE_GAUSSIAN_PROCESS_NOISE START_TIMEOUT
ELASTIC_TIMEOUT SPARK_START_TIMEOUT SPARK_USE_LOCAL_RANK_GPU_INDEX SPARK_WORK_DIR SPARK_PYTHONPATH TEST_GPU""".split()

# What works, by how that is seen.
FROM_THE_LAUNCHER = """RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE HOSTNAME GLOO_RENDEZVOUS_ADDR GLOO_RENDEZVOUS_PORT GLOO_IFACE
ELASTIC""".split()
NUMBERS = """FUSION_THRESHOLD CACHE_CAPACITY STALL_CHECK_DISABLE STALL_CHECK_TIME_SECONDS STALL_SHUTDOWN_TIME_SECONDS START_TIMEOUT
GLOO_TIMEOUT_SECONDS ELASTIC_TIMEOUT""".split()
ON_SPARK = ["SPARK_START_TIMEOUT"]  # python/tests/spark
ON_TENSORFLOW = ["ENABLE_XLA_OPS"]  # python/tests/tensorflow/test_xla.py
IN_A_JOB = ["DYNAMIC_PROCESS_SETS", "TIMELINE", "TIMELINE_MARK_CYCLES"]


def rows(state: str) -> set[str]:
    return {name for name, s in ROWS if s == state}


def test_the_list_is_whole():
    assert {name for name, _ in ROWS} == {f"HOROVOD_{n}" for n in ALL} | {"_HOROVOD_SECRET_KEY"}
    assert rows("works") == {f"HOROVOD_{n}" for n in FROM_THE_LAUNCHER + NUMBERS + IN_A_JOB + ON_SPARK + ON_TENSORFLOW}
    assert rows("refused") == {"HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"}


def work_values() -> None:
    """Every number is read, at each init; the modes that hora does not have are refused."""
    import horovod.torch as hvd

    for name in (f"HOROVOD_{n}" for n in NUMBERS):
        os.environ[name] = "soon"
        with pytest.raises(ValueError, match=f'{name}="soon" is'):
            hvd.init()
        del os.environ[name]  # START_TIMEOUT goes before GLOO_TIMEOUT_SECONDS
    for name in sorted(rows("refused")):
        os.environ[name] = "MPI"
        with pytest.raises(
            ValueError, match=f"{name}=mpi asks for Horovod's MPI mode, which hora does not have; unset it"
        ):
            hvd.init()
        os.environ[name] = "gloo"
    hvd.init()
    hvd.shutdown()


def test_values(ranks):
    ranks(1, work_values)


def work_job() -> None:
    """What programs do, with everything set."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    n = hvd.size()
    handles = [hvd.allreduce_async(torch.full((5,), float(i)), name=f"x{i}", op=hvd.Sum) for i in range(8)]
    assert [hvd.synchronize(h).tolist() for h in handles] == [[float(n * i)] * 5 for i in range(8)]
    assert [t.tolist() for t in hvd.grouped_allreduce([torch.ones(2), torch.ones(3)])] == [[1.0] * 2, [1.0] * 3]
    assert hvd.allgather(torch.full((1,), hvd.rank())).tolist() == list(range(n))
    assert hvd.allreduce(torch.ones(2), op=hvd.Adasum).tolist() == [1.0, 1.0]
    first = hvd.add_process_set([0])
    assert first.process_set_id == 1 and first.included() == (hvd.rank() == 0)
    hvd.shutdown()


@pytest.mark.parametrize("cached", ["0", "1024"])
def test_job(ranks, tmp_path, cached):
    timeline = tmp_path / "timeline.json"
    odd = dict.fromkeys(rows("no effect"), "1") | {
        "HOROVOD_CYCLE_TIME": "250", "HOROVOD_AUTOTUNE_LOG": str(tmp_path / "log.csv"), "HOROVOD_LOG_LEVEL": "TRACE",
        "HOROVOD_SPARK_WORK_DIR": str(tmp_path), "HOROVOD_SPARK_PYTHONPATH": str(tmp_path),
        "HOROVOD_DYNAMIC_PROCESS_SETS": "1", "HOROVOD_TIMELINE": str(timeline), "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_CACHE_CAPACITY": cached,
        "HOROVOD_FUSION_THRESHOLD": cached,
    }  # fmt: skip
    ranks(2, work_job, env=odd)
    assert not (tmp_path / "log.csv").exists()
    records = json.loads(timeline.read_text())
    assert sum(r.get("name") in ("ALLREDUCE", "ADASUM") for r in records) == 11
    assert any(r.get("name") == "CYCLE_START" for r in records)
    assert cached != "0" or not any(r.get("name") == "MEMCPY_IN_FUSION_BUFFER" for r in records), "each travels alone"


@pytest.mark.parametrize("flags", [["-np", "2"], ["-np", "2", "--min-np", "2"]])
def test_what_a_worker_gets(launcher, tmp_path, flags):
    show = tmp_path / "show.py"
    show.write_text(
        "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if 'HOROVOD_' in k or 'NCCL' in k}), flush=True)"
    )
    done = subprocess.run(
        [launcher, "horovodrun", *flags, sys.executable, show],
        env=os.environ | {"_HOROVOD_SECRET_KEY": "x", "NCCL_SOCKET_IFNAME": "lo"}, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    got = [json.loads(line[line.index("{") :]) for line in done.stdout.splitlines() if "{" in line]
    assert sorted(g["HOROVOD_RANK"] for g in got) == ["0", "1"]
    for g in got:
        assert {k: g.pop(k) for k in list(g) if "NCCL" in k} == {"NCCL_SOCKET_IFNAME": "lo"}
        assert set(g) == {
            f"HOROVOD_{n}"
            for n in [*FROM_THE_LAUNCHER, "CONTROLLER", "CPU_OPERATIONS"]
            if n != "ELASTIC" or len(flags) > 2
        }
        assert g["HOROVOD_LOCAL_RANK"] == g["HOROVOD_RANK"] and g["HOROVOD_SIZE"] == g["HOROVOD_LOCAL_SIZE"] == "2"
        assert (g["HOROVOD_CROSS_RANK"], g["HOROVOD_CROSS_SIZE"]) == ("0", "1")
        assert g["HOROVOD_CONTROLLER"] == g["HOROVOD_CPU_OPERATIONS"] == "gloo" and g["HOROVOD_GLOO_IFACE"] == "lo"
        assert (
            g["HOROVOD_HOSTNAME"]
            and g["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "127.0.0.1"
            and g["HOROVOD_GLOO_RENDEZVOUS_PORT"].isdigit()
        )
        assert g.get("HOROVOD_ELASTIC", "1") == "1"
