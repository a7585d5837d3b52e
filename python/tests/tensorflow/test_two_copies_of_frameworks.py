"""A process with two copies of the package that has TensorFlow's operations, or JAX', of the first: the second says so,
and the first goes on."""

import shutil
from pathlib import Path

import pytest

import hora

HERE = Path(hora.__file__).parent  # with the library, as it is installed

PROGRAM = """
import sys
from pathlib import Path


def imported_again():
    '''The package as it lies in another folder; frameworks stay the same.'''
    for name in [m for m in sys.modules if m.partition(".")[0] == "hora"]:
        del sys.modules[name]
    sys.path.insert(0, sys.argv[1])
    import hora as other

    assert Path(other.__file__).parent == Path(sys.argv[1], "hora")
    return other


import hora

hora.init()
if sys.argv[2] == "tensorflow":
    import tensorflow as tf
    import hora.tensorflow as first

    compiled = tf.function(first.allreduce)
    ones = tf.ones(2)
else:
    import jax
    import hora.jax as first

    compiled = jax.jit(first.allreduce)
    ones = jax.numpy.ones(2)
assert (compiled(ones) == 2).all() if sys.argv[2] == "jax" else (compiled(ones).numpy() == 2).all()
other = imported_again()
try:
    other.init()
except other.VersionError as e:
    assert "two copies of hora's library" in str(e), e
else:
    raise AssertionError("two copies joined one job")
try:
    if sys.argv[2] == "tensorflow":
        import hora.tensorflow as second
        tf.function(second.allreduce)(ones)
    else:
        import hora.jax as second
        jax.jit(second.allreduce)(ones)
except Exception as e:  # TensorFlow has a class of its own for what a traced function raises
    assert "NotInitializedError" in f"{type(e)} {e}" and "call hora.init() first" in str(e), e
else:
    raise AssertionError("the second copy's operations ran")
for _ in range(3):
    y = compiled(ones)
    assert [float(v) for v in y] == [2, 2], "the first goes on"
y = (tf.function(lambda x: first.allreduce(x * 2)) if sys.argv[2] == "tensorflow" else jax.jit(lambda x: first.allreduce(x * 2)))(ones)
assert [float(v) for v in y] == [4, 4], "what is traced later too"
print("well", flush=True)
"""


@pytest.mark.parametrize("framework", ["tensorflow", "jax"])
def test_two_copies_in_one_process(run, tmp_path, framework):
    shutil.copytree(HERE, tmp_path / "other" / "hora", ignore=shutil.ignore_patterns("__pycache__"))
    done = run(PROGRAM, args=(str(tmp_path / "other"), framework), timeout=60)
    assert done.stdout.count("well") == 2, done.stdout + done.stderr
