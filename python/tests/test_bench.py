"""bench/python_bench.py and bench/checks.py see what is planted: calls that do nothing, a wrong divisor, parts that are
exchanged."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from beside import TREE

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import checks  # noqa: E402


def divisor(arrays):
    for a in arrays:
        a *= np.float32(0.5)


def swap(arrays):
    """Two arrays, or the halves of one: blocks of a power of two, as data are cut."""
    a, b = arrays[:2] if len(arrays) > 1 else np.split(arrays[0], 2)
    kept = a.copy()
    a[:] = b
    b[:] = kept


FAULTS = (divisor, swap)


@pytest.mark.parametrize("shape", [(1024,), (256, 256, 256), (1 << 18, 1 << 18)])
def test_data_tell_a_wrong_result(shape):
    """Every element in the first turns and the last; in the others too, as these faults are everywhere."""
    arrays = [np.zeros(n, np.float32) for n in shape]
    data = checks.Data(arrays, 0, 3)

    def sum_of(turn):
        for i, a in enumerate(arrays):
            a[:] = sum(data.of(r, turn, i) for r in range(3))

    for turn in (-2, 0, 1, 500):
        for everything in (True, False):
            sum_of(turn)
            assert data.right(turn, 1, everything)
            assert not data.right(turn + 1, 1, everything), "the last turn's result passes"
            assert not data.right(turn, 0.5, everything)
            for fault in FAULTS:
                sum_of(turn)
                fault(arrays)
                assert not data.right(turn, 1, everything), fault.__name__
        data.fill(turn)
        assert not data.right(turn, 1, True), "the input passes"
        sum_of(turn)
        arrays[-1][-1] += 1
        assert not data.right(turn, 1, True), "one element"


def test_timed_rewrites_the_inputs():
    """A call that was right once, and whose result stays, is wrong in the next turn; and a wrong last call is seen
    whichever element it is in."""
    a = np.zeros(1 << 16, np.float32)
    data = checks.Data([a], 0, 2)
    done = []

    def call(turns, everything=True):
        done.append(1)
        if len(done) in turns:
            np.copyto(a, data.of(0, len(done) - 3, 0) + data.of(1, len(done) - 3, 0))
            if not everything:
                a[-2] += 1

    for turns, everything, right in (
        (range(9), True, True),
        ((1,), True, False),
        (range(1, 7), True, False),
        (range(9), False, False),
    ):
        done.clear()
        took, ok = checks.timed(lambda t=turns, e=everything: call(t, e), data, 1.0, 5, 0, lambda: None)
        assert (len(took), ok) == (5, right), turns


def test_apart():
    rng = np.random.default_rng(1)
    start = [rng.normal(size=100).astype(np.float32) for _ in range(3)]
    way = [rng.normal(size=100).astype(np.float32) * s for s in (1e-2, 1e-2, 1e-6)]
    ended = [a + w for a, w in zip(start, way, strict=True)]
    rounded = [e * np.float32(1 + 1e-6) for e in ended]
    assert checks.apart(start, rounded, ended) < checks.BOUND
    for wrong in (
        [a + 2 * w for a, w in zip(start, way, strict=True)],
        [start[0] + way[1], start[1] + way[0], ended[2]],
        start,
    ):
        assert checks.apart(start, wrong, ended) > 0.5
    with pytest.raises(checks.Wrong):
        checks.apart(start, start, start)


def work_planted():
    import python_bench

    world = python_bench.join("")
    python_bench.SIZES = {4096: 3}

    def missed(name, call, array):
        try:
            python_bench.part(world, name, 4096, call, array, 0)
        except checks.Wrong:
            return False
        return True

    for name, (call, array) in python_bench.contestants(world, 4096, "").items():
        assert missed(name, call, array), f"{name} was called wrong"
        assert not missed(name, lambda: None, array), f"a {name} that does nothing went unseen"
        for fault in FAULTS:

            def planted(call=call, array=array, fault=fault):
                call()
                fault([array])

            assert not missed(name, planted, array), f"{fault.__name__} in {name} went unseen"
    print("all seen")


def test_python_bench_sees_what_is_planted():
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([*TREE, os.environ.get("PYTHONPATH", "")]),
        "MPI4PY_MPIABI": "openmpi",
        "OMP_NUM_THREADS": "1",
    }
    mpirun = shutil.which("mpirun.openmpi") or "mpirun"
    done = subprocess.run(
        [mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable, __file__],
        env=env,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0 and done.stdout.count("all seen") == 2, done.stdout + done.stderr


if __name__ == "__main__":
    work_planted()
