"""horovod.spark as far as it needs no Spark: signatures, settings, refusals, and somebody else's package over ours."""

from __future__ import annotations

import inspect
import re
import warnings

import pytest

import hora
from hora import _world


def test_signatures_are_horovods():
    import horovod.spark

    def names(f):
        return list(inspect.signature(f).parameters)

    assert names(horovod.spark.run) == [
        "fn", "args", "kwargs", "num_proc", "start_timeout", "use_mpi", "use_gloo", "extra_mpi_args", "env", "stdout",
        "stderr", "verbose", "nics",
        "prefix_output_with_timestamp", "executable",
    ]  # fmt: skip
    assert names(horovod.spark.run_elastic) == [
        "fn", "args", "kwargs", "num_proc", "min_num_proc", "max_num_proc", "start_timeout", "elastic_timeout",
        "reset_limit", "env", "stdout",
        "stderr", "verbose", "nics", "prefix_output_with_timestamp", "min_np", "max_np",
    ]  # fmt: skip


def test_what_hora_does_not_have_is_refused():
    import horovod.spark

    with pytest.raises(ValueError, match="MPI mode"):
        horovod.spark.run(print, use_mpi=True)
    with pytest.raises(ValueError, match="only allow one"):
        horovod.spark.run(print, use_mpi=True, use_gloo=True)
    with pytest.raises(hora.HoraError, match="there is no active SparkSession"):
        horovod.spark.run(print, num_proc=1)
    with pytest.raises(hora.HoraError, match="there is no active SparkSession"):
        horovod.spark.run_elastic(print, num_proc=1)


def test_settings_have_names_that_spark_knows():
    from horovod.spark import conf

    pairs = {n: getattr(conf, n) for n in conf.__all__ if n != "SPARK_CONF_DEFAULT_VALUES"}
    assert len(pairs) == 17
    for key, value in pairs.values():
        assert re.fullmatch(r"true|false|\d+", value) and key in conf.SPARK_CONF_DEFAULT_VALUES
    assert not any("blacklist" in key for key in conf.SPARK_CONF_DEFAULT_VALUES)


def test_devices_are_those_of_this_ranks_task(monkeypatch):
    from horovod.spark.task import get_available_devices

    monkeypatch.delenv("HORA_SPARK_TASK_DEVICES", raising=False)
    assert get_available_devices() == []
    monkeypatch.setenv("HORA_SPARK_TASK_DEVICES", "2,3")
    assert get_available_devices() == ["2", "3"]


def test_host_hash_tells_salts_apart():
    from horovod.runner.common.util.host_hash import host_hash

    assert host_hash() == host_hash() != host_hash("x")


def test_host_hash_of_spark_tells_yarn_s_containers_apart(monkeypatch):
    """As the only name of it that a program for Spark has."""
    from horovod.runner.common.util.host_hash import host_hash as of_host
    from horovod.spark.common.util import host_hash

    monkeypatch.delenv("CONTAINER_ID", raising=False)
    assert host_hash() == of_host() and host_hash("x") == of_host("x") and host_hash("") == of_host()
    monkeypatch.setenv("CONTAINER_ID", "container_1")
    first = host_hash()
    assert first == host_hash() == of_host("container_1") and host_hash("x") == of_host("container_1-x")
    monkeypatch.setenv("CONTAINER_ID", "container_2")
    assert host_hash() != first


@pytest.mark.parametrize("name", ["horovod", "spark_tensorflow_distributor"])
def test_somebody_elses_package_over_ours_is_named(tmp_path, monkeypatch, name):
    (tmp_path / "hora").mkdir()
    (tmp_path / f"hora_compat-{hora.__version__}.dist-info").mkdir()
    for each in ("horovod", "spark_tensorflow_distributor"):
        (tmp_path / each).mkdir()
        (tmp_path / each / "__init__.py").write_text(
            '__version__ = "1.0.0+hora"\n' if each != name else "__version__ = '1.0.0'\n"
        )
    monkeypatch.setattr(_world, "__file__", str(tmp_path / "hora" / "_world.py"))
    monkeypatch.setattr(_world, "_named", False)
    with pytest.warns(
        RuntimeWarning, match=f"another {name} is installed over hora-compat.*pip uninstall -y {name.replace('_', '-')}"
    ):
        _world.look_beside()
    (tmp_path / name / "__init__.py").unlink()
    monkeypatch.setattr(_world, "_named", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _world.look_beside()
