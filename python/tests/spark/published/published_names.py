"""A plugin of pytest for Petastorm's published tests: it lets their files be imported.

They are of a time with NumPy 1, Python 3.10, pytest 6 and pyarrow 12, and what those had is given back here. Files that
test public names import inner works beside them: such a name is a stand-in, which fails the test that does anything
with it.
"""

from __future__ import annotations

import collections
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import types
import warnings

import numpy as np
import pyarrow
import pyarrow.fs
import pyarrow.parquet
import pytest

TESTS = os.environ["PUBLISHED_TESTS"]
INNER = ("arrow_reader_worker", "benchmark", "hdfs.namenode", "reader_impl", "workers_pool")
WITH_PRIVATE_NAMES = {
    "etl.dataset_metadata", "etl.petastorm_generate_metadata", "pytorch", "reader", "spark.spark_dataset_converter",
    "tf_utils",
    "tools.copy_dataset", "unischema",
}  # fmt: skip


class StandIn(type):
    """A name that can be imported and be a base of classes; nothing else can be done with it."""

    def _refuse(cls):
        raise NotImplementedError(f"{cls.__module__}.{cls.__name__} is one of Petastorm's inner works")

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        cls._refuse()

    def __call__(cls, *args, **kwargs):
        if isinstance(cls.__base__, StandIn):
            return super().__call__(*args, **kwargs)
        return cls._refuse()


def stand_ins(module, only=lambda name: True):
    """A __getattr__ for a module, in which what it has not is a stand-in, but for what pytest asks of every module."""

    def absent(name):
        if name.startswith(("__", "pytest", "setup_", "setUp", "teardown_", "tearDown", "collect_")) or not only(name):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return StandIn(name, (), {"__module__": module})

    return absent


class InnerModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of which every name is a stand-in; the tests below them are files."""

    def find_spec(self, fullname, path=None, target=None):
        short = fullname.removeprefix("petastorm.")
        if short == fullname or ".tests" in short or not any(short == i or short.startswith(f"{i}.") for i in INNER):
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def exec_module(self, module):
        module.__getattr__ = stand_ins(module.__name__)
        module.__path__ = [os.path.join(TESTS, *module.__name__.split("."))]


class PrivateNames(importlib.abc.MetaPathFinder):
    """Modules that are there, with stand-ins for the names with an underscore that are not."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.removeprefix("petastorm.") not in WITH_PRIVATE_NAMES or not fullname.startswith("petastorm."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            if hasattr(module, "main") and not hasattr(module, "_main"):
                module._main = module.main  # the same, by the name that theirs has
            module.__getattr__ = stand_ins(fullname, only=lambda name: name.startswith("_"))

        spec.loader.exec_module = exec_module
        return spec


class OldDataset(pyarrow.parquet.ParquetDataset):
    """pyarrow's, with three attributes that it had before 15."""

    def __init__(self, path, **kwargs):
        super().__init__(path, **kwargs)
        self.common_metadata_path = os.path.join(path, "_common_metadata")
        self._summary = os.path.join(path, "_metadata")

    @property
    def metadata(self):
        return pyarrow.parquet.read_metadata(self._summary) if os.path.exists(self._summary) else None

    @property
    def pieces(self):
        return [types.SimpleNamespace(get_metadata=lambda f=f: pyarrow.parquet.read_metadata(f)) for f in self.files]


PartitionSet = collections.namedtuple("PartitionSet", ("name", "keys"))


def dataset_of(partitions, arrow_schema):
    """In the place of a mock of pyarrow's old class: what today's has, where folders are columns of a dictionary's
    type."""
    for p in partitions:
        kind = pyarrow.int32() if all(k.isdigit() for k in p.keys) else pyarrow.string()
        arrow_schema = arrow_schema.append(pyarrow.field(p.name, pyarrow.dictionary(pyarrow.int32(), kind)))
    return types.SimpleNamespace(schema=arrow_schema)


def _module(name, **names):
    made = types.ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    made.__dict__.update(names)
    sys.modules[name] = made
    return made


def old_names():
    """What libraries had when the tests were written, and what the tests want of libraries that they can do without."""
    for old, new in {"unicode_": np.str_, "string_": np.bytes_, "float": float}.items():
        setattr(np, old, new)
    inspect.getargspec = inspect.getfullargspec
    pyarrow.lib.ArrowIOError = OSError
    pyarrow.LocalFileSystem = pyarrow.fs.LocalFileSystem
    pyarrow.hdfs = _module("pyarrow.hdfs")
    pyarrow.filesystem = _module("pyarrow.filesystem", LocalFileSystem=pyarrow.fs.LocalFileSystem)
    pyarrow.parquet.ParquetDataset, pyarrow.parquet.PartitionSet = OldDataset, PartitionSet
    import cloudpickle
    import pandas.testing

    _module("pandas.util.testing", assert_frame_equal=pandas.testing.assert_frame_equal)
    _module(
        "dill", dumps=cloudpickle.dumps, loads=cloudpickle.loads, extend=lambda use_dill: None
    )  # torch calls the last
    for name in ("s3fs", "gcsfs"):
        _module(name).__getattr__ = stand_ins(name)
    sys.modules["triton"] = None  # it ends the process where TensorFlow is loaded too
    warns = pytest.warns

    def warns_or_records(expected_warning=Warning, *args, **kwargs):
        return (
            warnings.catch_warnings(record=True)
            if expected_warning is None
            else warns(expected_warning, *args, **kwargs)
        )

    pytest.warns = warns_or_records


class OtherHooks:
    """Of pytest-logger, which their conftest.py configures."""

    def pytest_logger_config(logger_config): ...


def pytest_addhooks(pluginmanager):
    pluginmanager.add_hookspecs(OtherHooks)


def pytest_configure(config):
    for mark in ("forked: of pytest-forked", "timeout(seconds): of pytest-timeout"):
        config.addinivalue_line("markers", mark)


def pytest_collection_modifyitems(items):
    for module in {item.module for item in items}:
        if hasattr(module, "_mock_parquet_dataset"):
            module._mock_parquet_dataset = dataset_of


sys.meta_path[:0] = [InnerModules(), PrivateNames()]
old_names()
