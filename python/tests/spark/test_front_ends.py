"""sparkdl, horovod.spark and the examples on the cluster of the other tests."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys

import beside
import pyspark
import pytest
import same
from sample import longer


def example(folder: str, name: str):
    path = beside.ROOT / "examples" / folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"example_{folder[:2]}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("np", [pytest.param(-2, marks=longer), 2])  # the runner's example has -2 too
@pytest.mark.parametrize("verbosity", ["all", pytest.param("log_callback_only", marks=longer)])
def test_one_program_says_the_same_everywhere(whole, np, verbosity):
    same.check(np, verbosity)


ALL = pytest.mark.skipif(os.environ.get("HORA_SPARK") != "all", reason="needs a session of its own (make test-spark)")


@pytest.mark.parametrize(
    "master",
    [
        pytest.param("local[2]", marks=ALL),
        pytest.param(
            "connect",
            marks=pytest.mark.skipif(
                os.environ.get("HORA_SPARK") != "all" or pyspark.__version__ < "4",
                reason="needs a session of its own, and pyspark 4 (make test-spark)",
            ),
        ),
    ],
)
def test_one_program_says_the_same_in_a_session_of_its_own(master, tmp_path):
    """The standalone cluster is test_faults.py's, on hosts of its own."""
    done = subprocess.run(
        [sys.executable, same.__file__, master, tmp_path], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.endswith("the same\n"), done.stdout + done.stderr


@ALL
def test_no_number_of_slots_is_all_of_them(whole, caplog):
    from sparkdl import HorovodRunner

    def size():
        import horovod.torch as hvd

        hvd.init()
        return hvd.size()

    assert HorovodRunner(np=0).run(size) == 4
    assert "it uses all task slots of the cluster" in caplog.text


def test_horovod_spark_run(whole):
    import horovod.spark

    def work(a, b=0):
        import os

        import horovod.torch as hvd

        hvd.init()
        print("line", hvd.rank())
        return a + b + hvd.rank(), os.environ["GIVEN"]

    said = io.StringIO()
    got = horovod.spark.run(work, args=(10,), kwargs={"b": 5}, num_proc=2, env={"GIVEN": "yes"}, stdout=said)
    assert got == [(15, "yes"), (16, "yes")]
    assert {"[0]<stdout>:line 0", "[1]<stdout>:line 1"} <= set(said.getvalue().splitlines())


def test_horovod_spark_run_elastic(whole):
    import horovod.spark

    def work():
        import horovod.torch as hvd
        import torch

        hvd.init()
        state = hvd.elastic.TorchState(step=0)

        @hvd.elastic.run
        def train(state):
            while state.step < 5:
                hvd.allreduce(torch.ones(1), name="x")
                state.step += hvd.size() == 2  # the first may begin alone, and steps are quick
                state.commit()
            return state.step, hvd.size()

        return train(state)

    assert horovod.spark.run_elastic(work, num_proc=2, min_num_proc=1, max_num_proc=2) == [(5, 2), (5, 2)]


def test_the_runner_s_example(whole, capsys):
    example("50-spark-runner", "notebook").main()
    assert "the cluster and this machine agree" in capsys.readouterr().out


def test_the_tensorflow_example(whole, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, *(str(beside.folder(n)) for n in ("tensorflow", "jax"))])
    example("53-spark-tensorflow", "train").main()
    assert "two workers trained as one" in capsys.readouterr().out


@pytest.mark.skipif(
    os.environ.get("HORA_SPARK") != "all",
    reason="trains for longer; test_horovod_estimators.py has the main path (make test-spark)",
)
def test_the_estimators_example(whole, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [*sys.path, *(str(beside.folder(n)) for n in ("tensorflow", "jax"))])
    example("52-estimators", "train").main(str(tmp_path))
    assert "both learned the ring" in capsys.readouterr().out


@longer
def test_the_horovod_estimator_s_example(whole, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [*sys.path, str(beside.folder("tensorflow"))])
    example("56-horovod-estimator", "train").main(str(tmp_path))
    out = capsys.readouterr().out
    assert "step 200: loss" in out and "step 400: loss" in out and "of all rows right" in out


def test_the_elastic_example(whole, capsys):
    example("51-spark-elastic", "train").main()
    assert "every step was counted once" in capsys.readouterr().out
