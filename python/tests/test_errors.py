"""What bad input gets: one sentence of the right class, on every rank, and work goes on."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import hora
from hora import _abi, _bridge, _framework


def works():
    """The group still works."""
    assert hora.allreduce(np.ones(3)).tolist() == [float(hora.size())] * 3


def differ(kind, call, *says):
    """Every rank's call fails with one and the same text that says all this; then work goes on."""
    with pytest.raises(kind) as e:
        call()
    text = str(e.value)
    for s in says:
        assert s in text, text
    texts = hora.allgather_object(text)
    assert len(set(texts)) == 1, texts
    works()


def work_mismatch():
    hora.init()
    r = hora.rank()
    differ(hora.MismatchError, lambda: hora.allreduce(np.ones(3 + r)), "Mismatched", "shape", "3", "4")
    differ(
        hora.MismatchError,
        lambda: hora.allreduce(np.ones(3, dtype="f4" if r else "f8")),
        "Mismatched data types",
        "float32",
        "float64",
    )
    differ(
        hora.MismatchError,
        lambda: hora.allreduce(np.ones(3), "max" if r else "sum"),
        "Mismatched reduction operation",
        "max",
        "sum",
    )
    differ(hora.MismatchError, lambda: hora.broadcast(np.ones(3), r), "Mismatched", "root")
    one, two = "of 1 tensor on rank 0", "of 2 tensors on rank 1"
    differ(hora.MismatchError, lambda: hora.allreduce([np.ones(2)] * (1 + r)), one, two, "Calls so far")
    differ(hora.MismatchError, lambda: hora.broadcast([np.ones(2)] * (1 + r)), one, two)
    differ(hora.MismatchError, lambda: hora.allgather([np.ones(2 + r)] * (1 + r)), one, two)
    differ(
        hora.MismatchError,
        lambda: hora.allreduce(np.ones(3)) if r else hora.broadcast(np.ones(3)),
        "Mismatched operations",
    )
    differ(hora.MismatchError, lambda: hora.allreduce(np.ones(3), name="a" if r else "b"), "a", "b")
    differ(hora.MismatchError, lambda: hora.allreduce(np.ones(3), prescale=2.0 if r else 1.0), "Mismatched prescale")
    differ(hora.MismatchError, lambda: hora.allreduce(np.ones((2, 3) if r else (3, 2))), "Mismatched", "shape")
    h = hora.allreduce(np.ones(3 + r), async_=True)
    differ(hora.MismatchError, h.wait, "Mismatched")
    # in place: what was there is untouched
    x = np.full(3 + r, 7.0)
    differ(hora.MismatchError, lambda: hora.allreduce(x, out=x), "Mismatched")
    assert (x == 7).all()
    # named
    differ(hora.MismatchError, lambda: hora.allreduce(np.ones(3 + r), name="t", named=True), "Mismatched", "t")
    for name in ("g", [f"own {i}" for i in range(1 + r)]):
        differ(
            hora.MismatchError,
            lambda name=name: hora.allreduce([np.ones(2)] * (1 + r), name=name, named=True),
            one,
            two,
        )
    differ(hora.MismatchError, lambda: hora.allgather([np.ones(2 + r)] * (1 + r), name="h", named=True), one, two)


@pytest.mark.parametrize("links", ["", "tcp"])
def test_mismatch(ranks, links):
    ranks(2, work_mismatch, links=links)


def work_arguments():
    hora.init()
    r, n = hora.rank(), hora.size()

    def bad(says, call):
        with pytest.raises(hora.ArgumentError, match=says) as refused:
            call()
        assert refused.type is hora.ArgumentError  # no class that docs do not name

    locked = np.ones(3)
    locked.flags.writeable = False
    assert hora.allreduce(locked).tolist() == [float(n)] * 3
    bad("read-only", lambda: hora.allreduce(locked, out=locked))
    bad("read-only", lambda: hora.allreduce(b"abc", out=b"abc"))
    bad("not contiguous.*ascontiguousarray", lambda: hora.allreduce(np.ones((4, 4)).T[1:]))
    bad("not contiguous", lambda: hora.allreduce(np.ones(8)[::2], out=np.ones(4)))
    bad("element type", lambda: hora.allreduce(np.array(["text"])))
    bad("is no array", lambda: hora.allreduce({"a": 1}))
    bad("is no operator", lambda: hora.allreduce(np.ones(3), "median"))
    bad(
        f"broadcast: root={n} is not in a group of {n}; ranks count within the group",
        lambda: hora.broadcast(np.ones(3), n),
    )
    bad("reduce_scatter: op='mean' is no operator", lambda: hora.reduce_scatter(np.ones(n), "mean"))
    bad("out: .*not contiguous.*copy the result from it", lambda: hora.allreduce(np.ones(4), out=np.ones(8)[::2]))
    bad(r"group=\[0, 1\] is no group; make one with hora.Group", lambda: hora.allreduce(np.ones(3), group=[0, 1]))
    bad("group=0 is no group", lambda: hora.broadcast_object(1, group=0))
    bad("group=.* is no group", lambda: hora.buffer(3, group=[0]))
    bad("out has element type float32", lambda: hora.allreduce(np.ones(3), out=np.ones(3, dtype="f4")))
    bad("out has shape", lambda: hora.allreduce(np.ones(3), out=np.ones(4)))
    bad("needs a name", lambda: hora.allreduce(np.ones(3), named=True))
    bad("cannot be divided evenly", lambda: hora.alltoall(np.ones(n + 1)) if n > 1 else hora.alltoall(np.ones(3), [4]))
    bad("sum to", lambda: hora.alltoall(np.ones(3), [4] + [0] * (n - 1)))
    bad("does not fit", lambda: hora.allreduce(1 << 70))
    bad("complex", lambda: hora.allreduce(np.ones(3, dtype="c8"), "max"))
    bad("bitwise", lambda: hora.allreduce(np.ones(3), "xor"))
    bad("negative", lambda: hora.buffer((-1, 2)))
    bad("'float7' is no element type", lambda: hora.buffer(3, "float7"))
    bad("'str' is no element type", lambda: hora.buffer(3, str))
    works()
    assert r == hora.rank()


def test_arguments(ranks):
    ranks(2, work_arguments)


@pytest.mark.parametrize("text", ["__version__ = '0.28.1'\n", '__version__ = "0.28.1+hora"\n', ""])
def test_importing_hora_names_a_foreign_horovod(text, tmp_path):
    """One that lies where hora-compat is installed, over its files; its import need not come first, or at all."""
    tree = Path(__file__).resolve().parents[1] / "hora"
    (tmp_path / "hora").symlink_to(tree if (tree / "libhora.so").exists() else Path(hora.__file__).parent)
    (tmp_path / f"hora_compat-{hora.__version__}.dist-info").mkdir()
    if text:
        (tmp_path / "horovod").mkdir()
        (tmp_path / "horovod" / "__init__.py").write_text(text)
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    code = "import hora\nhora.init(rank=0, size=1)\nimport sys\nassert 'horovod' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("pip uninstall -y horovod") == ("'0.28.1'" in text), done.stderr
    assert ("<string>:1: RuntimeWarning" in done.stderr) == ("'0.28.1'" in text), done.stderr


def work_before_init():
    for call in (
        hora.rank,
        hora.size,
        hora.barrier,
        lambda: hora.allreduce(np.ones(3)),
        hora.world,
        hora.counters,
        lambda: hora.buffer(3),
    ):
        with pytest.raises(hora.NotInitializedError, match=r"call hora\.init\(\) first"):
            call()
    assert not hora.is_initialized()
    hora.shutdown()  # harmless


def test_before_init(ranks):
    """In a process of its own: other tests may have begun a world of one in this one."""
    ranks(1, work_before_init)


def work_in_flight():
    """Arrays that are dropped, and buffers that somebody tries to resize, while an operation reads them."""
    hora.init()
    hora.barrier()
    if hora.rank() == 0:
        time.sleep(0.3)
    b = bytearray(1000)
    h = hora.allreduce(b, out=b, async_=True)
    if hora.rank() == 1:
        with pytest.raises(BufferError):
            b.extend(b"more")
        x = np.ones(1000)
        g = hora.allreduce(x, out=x, async_=True)
        with pytest.raises(ValueError):
            x.resize(10_000_000)
    else:
        x = np.ones(1000)
        g = hora.allreduce(x, out=x, async_=True)
    h.wait()
    g.wait()
    b.extend(b"more")  # and afterwards they are the user's again
    x = y = None
    for _ in range(20):
        y = np.ones(1_000_000)
        hora.allreduce(y, out=y, async_=True)
        del y
    hora.barrier()
    works()
    assert x is None


def test_in_flight(ranks):
    ranks(2, work_in_flight)


def work_torch_in_flight():
    """What programs do to tensors; only resizing one is theirs to leave alone (docs/python.md)."""
    import torch

    hora.init()
    n, size = hora.size(), 1_000_000  # as large as what the allocator gives back to the system at once

    def fresh():
        return torch.full((size,), hora.rank() + 1.0)

    def begin(t, **how):
        hora.barrier()
        if hora.rank() == 0:
            time.sleep(0.2)
        return hora.allreduce(t, async_=True, **how)

    def check(t):
        assert (t == n * (n + 1) / 2).all()

    t = fresh()
    h = begin(t)
    del t
    check(h.wait())
    t = fresh()
    h = begin(t, out=t)
    t = torch.zeros(size)  # another tensor of that name
    check(h.wait())
    assert not t.any()

    def scoped():
        begin(fresh())
        begin(whole := fresh(), out=whole)
        part = fresh()[: size // 2]
        return begin(part, out=part)

    check(scoped().wait())
    t = fresh()
    storage = t.untyped_storage().data_ptr()
    h = begin(t)
    t.data = torch.zeros(size)  # its memory is nobody's else
    others = [torch.zeros(size) for _ in range(4)]
    assert h.done() or all(o.untyped_storage().data_ptr() != storage for o in others)
    check(h.wait())
    t = fresh()
    h = begin(t, out=t)
    view = t[:10]
    t.data = torch.zeros(size)
    h.wait()
    check(view)
    t.resize_(2 * size)  # and afterwards they are the user's again
    works()


def test_torch_in_flight(ranks):
    ranks(2, work_torch_in_flight, warm=True)


def work_deadline():
    hora.init()
    hora.barrier()
    if hora.rank() == 1:
        h = hora.allreduce(np.ones(3), async_=True)
        begun = time.monotonic()
        with pytest.raises(hora.DeadlineError, match="not finished within the timeout of 0.2 s"):
            h.wait(0.2)
        assert 0.15 < time.monotonic() - begun < 1
        assert not h.done()
        h.wait()
    else:
        time.sleep(1)
        hora.allreduce(np.ones(3))
    works()


def test_wait_with_a_timeout(ranks):
    ranks(2, work_deadline)


def work_settings():
    for wrong, says in [
        ({"rank": 5}, "rank"),
        ({"secret": "xyz"}, "hexadecimal"),
        ({"peer_timeout": "soon"}, "(?i)peer_timeout"),
    ]:
        with pytest.raises(hora.SettingsError, match=says):
            hora.init(**wrong)
        assert not hora.is_initialized()
    with pytest.raises(hora.SettingsError, match="must be text or a number"):
        hora.init(rank=[1])
    hora.init()
    works()


def test_settings(ranks):
    ranks(1, work_settings)


def work_environment():
    """What Python puts into os.environ counts, though C cannot see it."""
    os.environ.update(
        HORA_RANK=os.environ.pop("MY_RANK"), HORA_LOCAL_RANK="0" if False else os.environ["HORA_LOCAL_RANK"]
    )
    hora.init()
    assert hora.rank() == int(os.environ["HORA_RANK"])
    works()


def test_environment_set_from_python(job):
    j = job(1, work_environment, env={"MY_RANK": "0", "HORA_RANK": "7"})
    end = j.wait()[0]
    assert end.code == 0, end.err


def work_abort():
    hora.init()
    g = hora.Group(range(hora.size()), tag="to be aborted")
    hora.barrier()
    if hora.rank() == 1:
        h = hora.allreduce(np.ones(3), group=g, async_=True)
        g.abort("enough of it")
        with pytest.raises(hora.ClosedError, match="enough of it"):
            h.wait()
        with pytest.raises(hora.ClosedError):
            hora.allreduce(np.ones(3), group=g)
    works()


def test_abort(ranks):
    ranks(2, work_abort)


def leave_together(r):
    """A rank that leaves waits 0.3 s for the others to leave too, which on a busy machine need not suffice."""
    secret = Path(os.environ["HORA_SECRET_FILE"])
    marks = [secret.with_name(f"{secret.name}-{rank}-is-through") for rank in range(hora.size())]
    marks[r].touch()
    end = time.monotonic() + 20
    while not all(m.exists() for m in marks):
        assert time.monotonic() < end, "the other rank does not come"
        time.sleep(0.002)


def work_other_counts(how):
    """Ranks that make different numbers of equal calls end with a sentence that has both."""
    hora.init()
    r = hora.rank()
    for _ in range(3):
        hora.allreduce(np.ones(2))
    hora.barrier()
    if how == "surplus" and r == 1:
        hora.allreduce(np.ones(2))
    elif how == "in the background" and r == 1:
        hora.allreduce(np.ones(2), async_=True)
    elif how == "missing":
        for i in range(3):
            if r == 0 or i != 1:
                hora.allreduce(np.ones(2), async_=True)
    elif how == "by name" and r == 1:
        hora.allreduce(np.ones(2), name="x", named=True, async_=True)
    if how in ("in the background", "missing", "by name"):
        leave_together(r)
    if how == "batches":
        for _ in range(2 + r):
            hora.allreduce(np.ones(2), name="g", named=True)
    elif how == "exception" and r == 1:
        hora.allreduce(np.ones(2), async_=True)
        raise ValueError("a fault of its own")


@pytest.mark.parametrize("links", ["", "tcp"])
@pytest.mark.parametrize("how", ["surplus", "in the background", "missing", "by name"])
def test_other_counts_end_with_both(job, how, links):
    few, more = {"missing": ("6", "7")}.get(how, ("4", "5"))
    for r, ended in enumerate(job(2, work_other_counts, args=(how,), links=links).wait()):
        if how == "by name" and r == 0 and ended.code == 0:
            continue  # it left before rank 1 knew that nobody makes the group of its call
        assert ended.code == 1, (r, ended)
        assert f"made {few} calls" in ended.err or f"after {few} calls" in ended.err, (r, ended.err)
        assert f"made {more} calls" in ended.err or f"has made {more}" in ended.err, (r, ended.err)


def test_as_many_calls_part_in_peace(ranks):
    ranks(3, work_other_counts, args=("equal",))


def test_uneven_batches_name_the_cure(job):
    ended = job(2, work_other_counts, args=("batches",)).wait()
    assert "lost rank 0" in ended[1].err and "2 calls" in ended[1].err and "hora.join()" in ended[1].err, ended[1].err


def test_a_folder_with_a_framework_s_name_is_no_framework(tmp_path, monkeypatch):
    (tmp_path / "flow").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(hora.VersionError, match="Flow is not installed; hora.flow needs Flow 2.12 or newer"):
        _framework.need("hora.flow", "flow", (2, 12), "Flow", "flow")


def test_what_a_framework_has_counts_and_not_its_number(tmp_path, monkeypatch):
    (tmp_path / "stream.py").write_text("import types\n__version__ = '1.9'\nraw = types.SimpleNamespace(ops=1)\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def need(*names):
        return _framework.need(
            "hora.stream", "stream", (2, 12), "Stream", "stream", lambda found: _framework.missing(found, names)
        )

    flow = need("raw.ops")
    with pytest.raises(hora.VersionError, match=r"Stream 1\.9 is too old \(it has no raw\.more\); .*2\.12 or newer"):
        need("raw.ops", "raw.more.yet", "raw.more")
    flow.__version__ = "3.0"
    with pytest.raises(
        hora.VersionError, match=r"Stream 3\.0 has no more, which hora\.stream needs; docs/compatibility"
    ):
        need("raw", "more")
    with pytest.raises(hora.VersionError, match="NoSuch"):
        _framework.need(
            "h", "stream", (2,), "Stream", "stream", lambda _: _abi.lacks("libc.so.6", ("printf", "NoSuch"))
        )
    assert _abi.lacks("libnowhere.so", ("NoSuch",)) == ""


def work_first_call_by_name(limit):
    hora.init()
    if hora.rank() == 1:
        threading.Event().wait(5)
        with pytest.raises(hora.HoraError):  # of the one that gave up
            hora.allreduce(np.ones(3), name="a", named=True)
        if limit:
            hora.barrier()
        return
    begun = time.monotonic()
    with pytest.raises(hora.DeadlineError, match="not every rank has made its first call by name within 1s"):
        hora.allreduce(np.ones(3), name="a", named=True, timeout=limit)
    assert time.monotonic() - begun < 4
    if limit:
        with pytest.raises(hora.DeadlineError):  # at once
            hora.allreduce(np.ones(3), name="b", named=True)
        hora.barrier()


@pytest.mark.parametrize("env, limit", [({}, 1.0), ({"HORA_OP_TIMEOUT": "1"}, None)])
def test_the_first_call_by_name_has_its_timeout(ranks, env, limit):
    ranks(2, work_first_call_by_name, env=env, args=(limit,))


def work_late():
    hora.init()
    if hora.rank() == 1:
        threading.Event().wait(5)
    assert hora.allreduce(np.ones(3), name="a", named=True).tolist() == [2.0] * 3


def test_the_first_call_by_name_waits_for_a_rank_that_is_busy(job):
    ends = job(2, work_late, env={"HORA_START_TIMEOUT": "4", "HORA_STALL_WARN": "1"}).wait()
    assert [e.code for e in ends] == [0, 0], ends
    assert "world: not every rank has made its first call by name in 1s" in ends[0].err


def work_groups_alike():
    hora.init()
    first = hora.Group([0, 1])
    n = _bridge.number(first)
    other = hora.Group([0, 1])
    assert _bridge._bound[n][0] == first.handle
    other.close()
    assert _bridge._bound[n][0] == first.handle
    first.close()
    other = hora.Group([0, 1])
    assert _bridge._bound[n][0] == other.handle


def test_a_group_made_beside_one_leaves_that_its_programs(ranks):
    ranks(2, work_groups_alike)
