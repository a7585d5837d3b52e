"""docs/horovod.md walked: every name that "works" is there, every module that is "refused" says what to use."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

LIST = Path(__file__).resolve().parents[3] / "docs" / "horovod.md"
ROWS = re.findall(r"^\| `([^`]+)` \| (works|no effect|refused) \| (.*) \|$", LIST.read_text(encoding="utf-8"), re.M)

# Names of the old surface that have to be in the list, so that the list cannot shrink unseen.
TORCH = """init shutdown is_initialized rank size local_rank local_size cross_rank cross_size is_homogeneous mpi_threads_supported
mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built cuda_built rocm_built start_timeline stop_timeline
Average Sum Adasum Min Max Product ProcessSet global_process_set add_process_set remove_process_set allreduce allreduce_
allreduce_async allreduce_async_ grouped_allreduce grouped_allreduce_ grouped_allreduce_async grouped_allreduce_async_
sparse_allreduce_async allgather allgather_async grouped_allgather grouped_allgather_async broadcast broadcast_
broadcast_async broadcast_async_ alltoall alltoall_async reducescatter reducescatter_async grouped_reducescatter
grouped_reducescatter_async join barrier poll synchronize broadcast_parameters broadcast_optimizer_state broadcast_object
allgather_object Compression SyncBatchNorm DistributedOptimizer elastic HorovodInternalError""".split()


def find(name):
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:i]))
        except ModuleNotFoundError:
            continue
        for n, part in enumerate(parts[i:], i):
            thing = INSTANCES.get(".".join(parts[:n]), lambda made: made)(thing)
            thing = getattr(thing, part)
        return thing
    raise AssertionError(f"{name}: no part of it can be imported")


# Where members are looked up: in a class that says nothing of them, or behind a function.
INSTANCES = {
    "horovod.torch.ProcessSet": lambda made: made([0]),
    "horovod.common.exceptions.HostsUpdatedInterrupt": lambda made: made(),
    "horovod.torch.DistributedOptimizer": lambda made: importlib.import_module("hora.torch.optimizer")._Mixin,
    "horovod.torch.elastic.ElasticSampler": lambda made: made(range(4)),
}

# Members that have to be in the list.
MEMBERS = {
    "horovod.torch.ProcessSet": "process_set_id ranks size rank included",
    "horovod.torch.Compression": "none fp16",
    "horovod.torch.DistributedOptimizer": "step zero_grad synchronize skip_synchronize set_backward_passes_per_step",
    "horovod.torch.elastic.TorchState": "save restore sync commit check_host_updates register_reset_callbacks on_reset",
    "horovod.torch.elastic.ElasticSampler": "set_epoch record_batch state_dict load_state_dict",
    "horovod.common.exceptions.HostsUpdatedInterrupt": "skip_sync",
    "sparkdl.HorovodRunner": "run",
    "spark_tensorflow_distributor.MirroredStrategyRunner": "run",
}

# Flags and variables have tests of their own, names of TensorFlow, Keras and MXNet are walked beside those, estimators
# and TensorFlow's data service on Spark where there is a Spark.
SPARKS = (
    "horovod.spark.torch", "horovod.spark.keras", "horovod.spark.lightning", "horovod.spark.common.params",
    "sparkdl.estimators.horovod_estimator.estimator",
)  # fmt: skip
WALKED = [
    r
    for r in ROWS
    if not r[0].startswith(
        (
            "-",
            "horovod.tensorflow",
            "horovod.keras",
            "horovod.mxnet",
            "horovod.spark.tensorflow",
            "sparkdl.horovod.tensorflow",
            *SPARKS,
        )
    )
    and not r[0].isupper()
]


@pytest.mark.parametrize(("name", "state", "note"), WALKED)
def test_listed(name, state, note):
    if name == "horovod.runner.run_task":
        done = subprocess.run([sys.executable, "-m", name, "127.0.0.1", "1"], capture_output=True, text=True)
        assert state == "refused" and done.returncode == 1 and "call horovod.run(func, num_proc=2)" in done.stderr
    elif state == "refused":
        with pytest.raises(ImportError, match="not part of hora: "):
            importlib.import_module(name)
    else:
        find(name)


@pytest.mark.parametrize("name", SPARKS)
def test_estimators_say_what_they_need(name, monkeypatch):
    """Where pyspark is not installed; where it is, the tests of Spark import them."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for known in [m for m in sys.modules if m.startswith(("pyspark.", "horovod.spark"))]:
        monkeypatch.delitem(sys.modules, known)
    with pytest.raises(ImportError, match="needs? the package pyspark; run `pip install pyspark`"):
        importlib.import_module(name)


def test_the_list_is_whole():
    listed = {r[0] for r in ROWS}
    assert not [n for n in TORCH if f"horovod.torch.{n}" not in listed]
    assert not [f"{of}.{n}" for of, names in MEMBERS.items() for n in names.split() if f"{of}.{n}" not in listed]
    assert {
        "NCCL_SOCKET_IFNAME",
        "horovod.runner.run_task",
        "spark_tensorflow_distributor.MirroredStrategyRunner",
    } <= listed
    import horovod.torch as hvd

    public = set(hvd.mpi_ops.__all__) | set(hvd.__all__)
    assert not [n for n in public if f"horovod.torch.{n}" not in listed]


def test_defaults_and_order_of_arguments():
    import horovod.torch as hvd

    def names(f):
        return list(inspect.signature(f).parameters)

    scale = ["prescale_factor", "postscale_factor", "process_set"]
    assert names(hvd.allreduce) == ["tensor", "average", "name", "compression", "op", *scale]
    assert names(hvd.allreduce_async_) == ["tensor", "average", "name", "op", *scale]
    assert names(hvd.broadcast) == ["tensor", "root_rank", "name", "process_set"]
    assert names(hvd.alltoall) == ["tensor", "splits", "name", "process_set"]
    assert names(hvd.reducescatter) == ["tensor", "name", "compression", "op", "process_set", *scale[:2]]
    assert names(hvd.DistributedOptimizer) == [
        "optimizer", "named_parameters", "compression", "backward_passes_per_step", "op", "gradient_predivide_factor",
        "num_groups", "groups", "sparse_as_dense", "process_set",
    ]  # fmt: skip
    assert (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product) == (0, 1, 2, 3, 4, 5)
    import horovod

    assert horovod.__version__ == "0.28.1+hora"


def test_private_names_that_scripts_use():
    import horovod.torch as hvd
    from horovod.common.util import _cache, extension_available
    from horovod.runner.common.util.env import get_env_rank_and_size
    from horovod.runner.util.threads import in_thread
    from horovod.torch.mpi_ops import synchronize

    assert extension_available("torch") and not extension_available("mxnet") and callable(_cache)
    assert get_env_rank_and_size() == (0, 1)
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks and synchronize
    got = []
    in_thread(got.append, (1,)).join()
    assert got == [1]
    state = hvd.elastic.TorchState(epoch=3)
    assert state._host_messages.empty() and state._last_updated_timestamp == 0
    state.epoch = 4
    state.restore()
    assert state.epoch == 3
    with pytest.raises(ValueError, match="tuple"):
        in_thread(got.append, 1)


def test_util(monkeypatch):
    from horovod.common import util

    with util.env(HORA_TEST_A="1", PATH=None):
        import os

        assert os.environ["HORA_TEST_A"] == "1" and "PATH" not in os.environ
    assert "HORA_TEST_A" not in os.environ and "PATH" in os.environ
    assert [list(p) for p in util.split_list(list(range(7)), 3)] == [[0, 1, 2], [3, 4], [5, 6]]
    assert util.is_version_greater_equal_than("2.15.0+cpu", "2.4.0") and not util.is_version_greater_equal_than(
        "1.9.1", "1.10.0"
    )
    with pytest.raises(ValueError, match="three numbers"):
        util.is_version_greater_equal_than("1.0.0", "1.0")
    with pytest.raises(ImportError):
        util.check_extension("horovod.mxnet")


def test_refused_modes(monkeypatch):
    import horovod.torch as hvd

    monkeypatch.setenv("HOROVOD_CONTROLLER", "mpi")
    with pytest.raises(ValueError, match="MPI mode"):
        hvd.init()
    monkeypatch.delenv("HOROVOD_CONTROLLER")
    with pytest.raises(ValueError, match="MPI communicator"):
        hvd.init(comm=object())
    with pytest.raises(ValueError, match="list of ProcessSet"):
        hvd.init(process_sets="static")
    import horovod

    for wrong in (
        {"hosts": "a:1", "hostfile": "b"},
        {"use_gloo": True, "use_mpi": True},
        {"use_mpi": True},
        {"reset_limit": 1},
    ):
        with pytest.raises(ValueError, match=r"Argument|MPI|elastic"):
            horovod.run(print, num_proc=1, **wrong)


def test_run_hands_its_arguments_on(monkeypatch):
    import horovod

    import hora

    calls = []
    monkeypatch.setattr(hora, "run", lambda func, **options: calls.append(options) or [func(*options["args"])] * 3)
    assert horovod.run(abs, (-2,), num_proc=3, hosts="a:2,b:1", ssh_port=2222, executable="/usr/bin/python3") == [
        2,
        2,
        2,
    ]
    assert calls.pop() == {
        "args": (-2,), "kwargs": {}, "np": 3, "hosts": "a:2,b:1", "flags": ["--ssh-port", "2222"],
        "python": "/usr/bin/python3"
    }  # fmt: skip
    with pytest.warns(DeprecationWarning, match="min_np is deprecated"):
        assert horovod.run(abs, (-2,), num_proc=3, min_np=2, max_num_proc=4, reset_limit=5, cooldown_range=[1, 60]) == [
            2,
            2,
        ]
    flags = ["--reset-limit", "5", "--blacklist-cooldown-range", "1", "60"]
    assert calls.pop() == {"args": (-2,), "kwargs": {}, "np": 3, "min_np": 2, "max_np": 4, "flags": flags}
    horovod.run(abs, (-2,), num_proc=2, host_discovery_script="./hosts.sh", slots=4)
    flags = ["--slots-per-host", "4", "--host-discovery-script", "./hosts.sh"]
    assert calls.pop() == {"args": (-2,), "kwargs": {}, "np": 2, "min_np": 2, "max_np": None, "flags": flags}


def test_data_loader():
    from horovod.data import AsyncDataLoaderMixin, BaseDataLoader

    class Numbers(BaseDataLoader):
        def __init__(self, n, fail=False):
            self.n, self.fail = n, fail

        def __len__(self):
            return self.n

        def _iterate(self):
            yield from range(self.n)
            if self.fail:
                raise RuntimeError("no more")

        def _process_batch(self, batch):
            return batch * 2

    class Ahead(AsyncDataLoaderMixin, Numbers):
        pass

    assert list(Numbers(4)) == [0, 2, 4, 6]
    for size in (0, 1, 64):
        loader = Ahead(async_loader_queue_size=size, n=10)
        assert list(loader) == list(loader) == [2 * i for i in range(10)]
        loader.close_async_loader()
    loader = Ahead(2, False, 100)
    assert next(iter(loader)) == 0
    loader.close_async_loader()
    assert loader.thread is None
    with pytest.raises(RuntimeError, match="no more"):
        list(Ahead(2, False, 3, fail=True))


def test_horovod_runner():
    from sparkdl import HorovodRunner

    np, verbosity = inspect.signature(HorovodRunner).parameters.values()
    assert (np.name, np.kind, np.default) == ("np", np.KEYWORD_ONLY, np.empty)
    assert (verbosity.name, verbosity.kind, verbosity.default) == (
        "driver_log_verbosity",
        np.KEYWORD_ONLY,
        "log_callback_only",
    )
    for wrong in (lambda: HorovodRunner(2), lambda: HorovodRunner()):
        with pytest.raises(TypeError, match=r"HorovodRunner\(np=2\)"):
            wrong()
    with pytest.raises(ValueError, match="np=0"):
        HorovodRunner(np=0)
    with pytest.raises(ValueError, match="verbosity"):
        HorovodRunner(np=-1, driver_log_verbosity="loud")
    assert HorovodRunner(np=-1).run(lambda a, b: a + b, a=1, b=2) == 3
    of = inspect.getfullargspec(HorovodRunner.__init__)  # programs compare them with sparkdl's
    assert of == (
        ["self"],
        None,
        None,
        None,
        ["np", "driver_log_verbosity"],
        {"driver_log_verbosity": "log_callback_only"},
        {},
    )
    assert inspect.getfullargspec(HorovodRunner.run) == (["self", "main"], None, "kwargs", None, [], None, {})


def test_horovod_runner_on_two_processes():
    from sparkdl import HorovodRunner

    def train(scale):
        import horovod.torch as hvd
        import torch

        hvd.init()
        return hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum).item() * scale

    assert HorovodRunner(np=-2).run(train, scale=10) == 30


@pytest.mark.parametrize("verbosity", ["log_callback_only", "all"])
def test_horovod_runner_says_what_it_starts(launcher, monkeypatch, caplog, capsys, verbosity):
    """Without pyspark, on fewer GPUs than processes; with either verbosity all that workers write comes to the
    driver."""
    from sparkdl import HorovodRunner

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    def work():
        import os

        from sparkdl.horovod import log_to_driver

        rank = os.environ["HOROVOD_RANK"]
        print("printed by", rank)
        log_to_driver("told")
        log_to_driver("x" * 4001)
        return rank

    assert HorovodRunner(np=2, driver_log_verbosity=verbosity).run(work) == "0"
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records if r.name == "HorovodRunner"] == [
        ("HorovodRunner", "WARNING", text)
        for text in (
            "HorovodRunner(np=2): there is no active Spark session, so 2 processes start on this machine, as with np=-2",
            "HorovodRunner: 2 processes share 1 GPUs; use np=-1 for one each",
        )
    ]
    lines = capsys.readouterr().out.splitlines()
    for rank in "01":
        for text in (f"printed by {rank}", "told", "x" * 4000 + "…"):
            assert f"[{rank}]<stdout>:{text}" in lines


def test_horovod_runner_with_a_gpu_each(monkeypatch, caplog, capsys):
    from sparkdl.horovod import log_to_driver, runner_base

    import hora

    monkeypatch.setattr(hora, "run", lambda main, kwargs, np, env: [main(**kwargs)] * np)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert runner_base.HorovodRunner(np=-2).run(lambda: 5) == 5
    assert not caplog.records
    assert runner_base.HorovodRunner(np=-3).run(lambda: 5) == 5
    assert [r.getMessage() for r in caplog.records] == [
        "HorovodRunner: 3 processes share 2 GPUs; use np=-2 for one each"
    ]
    monkeypatch.delenv("HOROVOD_RANK", raising=False)
    log_to_driver("in this process")
    monkeypatch.setenv("HOROVOD_RANK", "3")
    log_to_driver("of a rank")
    assert capsys.readouterr().out == "in this process\n[3] of a rank\n"
