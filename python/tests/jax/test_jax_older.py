"""The older interface of XLA, which releases before 0.5.0 get, on the release of today, which has it still."""

import re

from test_jax_faults import GATHERS, KILLED, WRONG
from test_jax_programs import CALLS

OLDER = """
import hora.jax._xla as chosen

assert chosen._way is chosen.typed
chosen._way = chosen.text
"""


def test_calls(run):
    assert run(OLDER + CALLS).stdout.count("well") == 2


def test_wrong_calls(run):
    assert run(OLDER + WRONG).stdout.count("well") == 2


def test_a_killed_rank_is_replaced(run, tmp_path):
    done = run(OLDER + KILLED, "-np", "2", "--restarts", "1", args=(str(tmp_path / "mark"),))
    assert done.stdout.count("well 2") == 2
    assert re.search(r"recovered in [0-9.]+ s", done.stderr), done.stderr
    assert "Traceback" not in done.stderr, done.stderr


def test_what_goes_by_the_number_of_ranks_is_traced_anew(run):
    assert run(OLDER + GATHERS, "-np", "2", "--on-loss", "continue", "--min-np", "1").stdout.count("well 1") == 1


# What the handler says of texts that it does not run, called as XLA calls it.
WORDS = """
import ctypes, resource
import jax  # with the C++ library that the texts are made by
import hora
from hora import _bridge
from hora.group import Kind


class Status(ctypes.Structure):
    _fields_ = [("text", ctypes.c_void_p), ("n", ctypes.c_size_t), ("own", ctypes.c_char * 16), ("set", ctypes.c_ubyte)]


def said(text):
    status, room = Status(), (ctypes.c_void_p * 4)()
    assert _bridge.address("hora_xla_text_open")() == 0
    _bridge.address("hora_xla_text")(room, room, text.encode(), len(text), ctypes.byref(status))
    assert status.set, text
    return ctypes.string_at(status.text, status.n).decode()


def call(arrays):
    return _bridge.text([int(Kind.ALLREDUCE), 0, 0, 0, _bridge.bits(1.0), _bridge.bits(1.0)], 0, arrays, "x")


hora.init()
assert "an array has more than 64 dimensions; reshape it" in (t := said(call([("float32", 1, (1,) * 65)]))), t
many = call([]).replace(" 0\\n", f" {1 << 20}\\n")  # of which the descriptions alone take half a GiB
with open("/proc/self/statm") as f:
    now = int(f.read().split()[0]) * resource.getpagesize()
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (now + (128 << 20), before[1]))
text = said(many)
resource.setrlimit(resource.RLIMIT_AS, before)
assert text == "run compiled operation: out of memory", text
for strange in ("0 0", call([]).replace(" 0\\n", " -1\\n"), call([("float32", 1, ())]).replace(" 1 0\\n", " 1 -1\\n")):
    assert "it was made by another version of hora; trace the program again" in (t := said(strange)), (strange, t)
print("well")
"""


def test_texts_that_are_not_run_are_refused_with_the_reason(run):
    assert "well" in run(WORDS, "-np", "1").stdout


# XLA of 0.4.38 hands a failed program's results on as if there were any, with its token: here the token is left out.
FOLLOWS = (
    OLDER
    + """
import jax, jax.numpy as jnp
from jax._src import dispatch
import hora, hora.jax as hj
from hora import _bridge

hora.init()
r, n = hora.rank(), hora.size()
step = jax.jit(hj.allreduce)
assert float(step(jnp.float32(1))) == n


def fails(call, *says):
    try:
        jax.block_until_ready(call())
    except jax.errors.JaxRuntimeError as e:
        assert all(t in str(e) for t in says), e
        assert isinstance(_bridge.failure(e), hora.MismatchError)
        dispatch.runtime_tokens.clear()
    else:
        raise AssertionError("no error")


for turn in range(3):
    fails(lambda: step(jnp.ones(3 + r)), "[3] on rank 0 and [4] on rank 1")
    for _ in range(2):
        fails(lambda: step(jnp.float32(1)), "[3] on rank 0 and [4] on rank 1", "in an earlier call: hora.jax.recover() lets")
    hj.recover()
    assert float(step(jnp.float32(1))) == n
print("well")
"""
)


def test_what_follows_a_failed_call_fails_until_it_is_known(run):
    assert run(FOLLOWS).stdout.count("well") == 2


# An array of so many dimensions in a program: NumPy makes none, XLA does.
DEEP = (
    OLDER
    + """
import jax, jax.numpy as jnp
import hora, hora.jax as hj

hora.init()
for dims in (64, 65):
    f = jax.jit(lambda x: hj.allreduce(x.reshape((1,) * dims)).reshape(()))
    try:
        y = float(f(jnp.float32(1)))
    except Exception as e:
        assert dims == 65 and "an array has more than 64 dimensions; reshape it" in str(e), e
        hj.recover()
    else:
        assert dims == 64 and y == hora.size()
print("well")
"""
)


def test_an_array_of_too_many_dimensions(run):
    assert run(DEEP).stdout.count("well") == 2


# What check() makes of releases that it is told, and of a trial that ends otherwise; it leaves no core file behind.
CHOICE = """
import resource
import jax, jaxlib
import hora.jax
from hora.jax import _xla
from hora.errors import VersionError

most = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (most, most))
core = "import resource; raise SystemExit(f'cores of {resource.getrlimit(resource.RLIMIT_CORE)[0]} bytes')"
trial, hangs = _xla._TRY, "import os; os.read(os.pipe()[0], 1)"
for releases, trial, seconds, says in (
    (("0.5.0", "0.5.0"), "raise SystemExit(1)", 120, "typed"),
    (("0.4.38", "0.5.1"), trial, 120, "text"),
    (("0.4.31", "0.4.31"), "raise SystemExit('XLA has gone astray')", 120, "XLA has gone astray; install jax 0.5.0 or newer"),
    (("0.4.31", "0.4.31"), core, 120, "cores of 0 bytes"),
    (("0.4.31", "0.4.31"), hangs, 0.5, "timed out after 0.5 seconds"),
    (("0.4.31", "0.4.31"), "import os; os.abort()", 120, "in another process: it said nothing"),
    (("0.4.31", "0.4.30"), trial, 120, "jaxlib 0.4.30 is too old; hora.jax needs 0.4.31 or newer"),
):
    jax.__version__, jaxlib.__version__ = releases
    _xla._TRY, _xla._TRY_S, _xla._way = trial, seconds, None
    try:
        _xla.check()
    except VersionError as e:
        assert _xla._way is None and says in str(e), (says, e)
    else:
        assert says in ("typed", "text") and _xla._way is getattr(_xla, says), says
print("well")
"""


def test_the_way_is_chosen_by_a_trial(run, tmp_path):
    assert "well" in run(CHOICE, "-np", "1", TMPDIR=str(tmp_path)).stdout


# Ranks that import hora.jax at once, of a release that has to be tried. The trial says that it was made.
ONCE = """
import os, sys
import hora.jax
from hora.jax import _xla
import jax, jaxlib

_xla._TRY = f"import os; os.write(os.open({sys.argv[1]!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT), b'x'); print('well')"
jax.__version__ = jaxlib.__version__ = "0.4.38"
hora.init()
hora.barrier()
_xla._way = None
_xla.check()
assert _xla._way is _xla.text
print("well")
"""


def test_the_ranks_of_a_host_make_one_trial(run, tmp_path):
    made = tmp_path / "made"
    for more, trials in ({}, 1), ({}, 1), ({"XLA_FLAGS": "--xla_cpu_enable_fast_math=false"}, 2):
        assert run(ONCE, args=(str(made),), TMPDIR=str(tmp_path), **more).stdout.count("well") == 2
        assert made.read_text() == "x" * trials


# A call that has a side effect and no token, which is what the trial must not pass.
PLAIN = """
import numpy
from jax._src.interpreters import mlir
from hora.jax import _trial, _xla


def lower(ctx, token, args, call, name):
    byte, kind = mlir.ir_constant(numpy.uint8(0)), mlir.token_type
    mlir.token_type = lambda: byte.type
    try:
        return token, _xla.text.lower(ctx, byte, args, call, name)[1]
    finally:
        mlir.token_type = kind


_xla._way = _xla.Way(_xla.text.register, lower)
try:
    _trial.orders()
except AssertionError as e:
    assert "does not keep to the order" in str(e), e
    print("well")
"""


def test_the_trial_finds_what_does_not_order(run):
    assert "well" in run(PLAIN, "-np", "1").stdout
