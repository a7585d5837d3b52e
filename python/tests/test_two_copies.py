"""A process with two copies of the package, each with its library: the second says so, and the first goes on."""

import shutil
import sys
from pathlib import Path

import numpy as np

import hora

HERE = Path(hora.__file__).parent


def imported_again(folder):
    """The package as it lies in another folder."""
    for name in [m for m in sys.modules if m.partition(".")[0] == "hora"]:
        del sys.modules[name]
    sys.path.insert(0, folder)
    import hora as other

    assert Path(other.__file__).parent == Path(folder, "hora")
    return other


def work(folder):
    other = imported_again(folder)
    for first, second in ((hora, other), (other, hora)):
        first.init()
        try:
            second.init()
        except second.VersionError as e:
            home, away = (Path(p.__file__).parent / "libhora.so" for p in (first, second))
            assert f"two copies of hora's library, and {home} is in a job already; {away} would join" in str(e), e
        else:
            raise AssertionError("two copies joined one job")
        assert not second.is_initialized()
        assert (first.allreduce(np.ones(2)) == 2).all(), "the first goes on"
        first.shutdown()


def test_two_copies_in_one_process(ranks, tmp_path):
    shutil.copytree(HERE, tmp_path / "hora", ignore=shutil.ignore_patterns("__pycache__"))
    ranks(2, work, args=(str(tmp_path),))
