"""Bad input to hora.torch: an exception of torch's own class with a sentence that names ranks, in time, and never a
hang."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from training import network, start

import hora


def within(seconds):
    return datetime.timedelta(seconds=seconds)


def after_all(name):
    """Ends this process once every rank has come here: till then nobody takes another's end for the fault."""
    r, n = int(os.environ["HORA_RANK"]), int(os.environ["HORA_SIZE"])
    met = dist.FileStore(f"{os.environ['HORA_SECRET_FILE']}.{name}", n)
    met.set(str(r), "here")
    met.wait([str(i) for i in range(n)], within(60))
    sys.stdout.flush()
    os._exit(0)


# -- gradients that are put together differently


def work_buckets_differ(way):
    import hora.torch

    r, _ = start(timeout=within(60))
    model = network()
    call, opt = model, torch.optim.SGD(model.parameters(), lr=0.1)
    if way == "optimizer":
        opt = hora.torch.DistributedOptimizer(opt, model.named_parameters(), num_groups=1 + r)
    else:
        call = nn.parallel.DistributedDataParallel(
            model, bucket_cap_mb=0.0001 if r else 25, find_unused_parameters=True
        )
        if way == "accelerate":
            hora.torch.accelerate(call)
    with pytest.raises(RuntimeError) as e:
        for _ in range(3):
            opt.zero_grad()
            call(torch.ones(2, 8)).sum().backward()
            opt.step()
    print(e.type.__name__, str(e.value).splitlines()[0], flush=True)
    after_all("differ")


@pytest.mark.parametrize("way", ["ddp", "accelerate", "optimizer"])
def test_buckets_that_differ(job, way):
    for e in job(2, work_buckets_differ, args=(way,)).wait(40):
        assert e.code == 0, e.err
        assert (
            "rank 0" in e.out
            and "rank 1" in e.out
            and ("Mismatched ALLREDUCE tensor shapes" in e.out or "Mismatched buckets" in e.out)
        ), e.out


def work_models_differ():
    """Another number of parameters on one rank: torch compares them when DDP wraps the model, over our gathers."""
    r, _ = start(timeout=within(60))
    model = network()
    if r == 1:
        for p in model[0].parameters():
            p.requires_grad_(False)
    with pytest.raises(RuntimeError, match=r"but Rank \d has \d params, while rank \d has inconsistent"):
        nn.parallel.DistributedDataParallel(model)
    after_all("models")


def test_models_that_differ(ranks):
    ranks(2, work_models_differ, timeout=90)


# -- another backend on one rank


def work_two_backends(way):
    import hora.torch  # noqa: F401

    r, n = int(os.environ["HORA_RANK"]), int(os.environ["HORA_SIZE"])
    backend, limit = "gloo" if r else "hora", within(4)
    if way == "new_group":
        start(timeout=within(60))
    else:
        store = dist.FileStore(f"{os.environ['HORA_SECRET_FILE']}.two", n)
    began = time.monotonic()
    with pytest.raises(RuntimeError) as e:
        if way == "new_group":
            dist.new_group(backend=backend, timeout=limit)
        else:
            dist.init_process_group(backend, store=store, rank=r, world_size=n, timeout=limit)
    assert time.monotonic() - began < 12, "not within the group's timeout"
    print(e.type.__name__, str(e.value))
    after_all(f"{way}.met")


@pytest.mark.parametrize("way", ["init_process_group", "new_group"])
def test_two_backends(job, way):
    """The rank with gloo hears from torch itself that nobody meets it; the other one names it."""
    ends = job(2, work_two_backends, args=(way,)).wait(90)
    assert [e.code for e in ends] == [0, 0], ends
    assert ends[0].out.startswith("DistBackendError make torch process group"), ends[0].out
    assert 'rank 1 of 2 did not ask for it with backend "hora" within the timeout of 4 s' in ends[0].out, ends[0].out


def test_all_have_come_as_the_time_ran_out():
    """Between a rank's name and the count of names lies a moment: who looks just then misses nobody."""
    from hora.torch import _start

    store = dist.HashStore()
    dist.PrefixStore("hora/1", store).set("host/1", "there")
    assert _start._meet(store, 0, 2, "default", within(0.1)).check(["host/0", "host/1"])
    with pytest.raises(dist.DistBackendError, match=r"rank 2 of 3 did not ask for it .* within the timeout of 0\.1 s"):
        dist.PrefixStore("hora/2", store).set("host/1", "there")
        _start._meet(store, 0, 3, "default", within(0.1))


def work_late():
    """A rank may be later than hora's own start timeout; and a store may serve several lives."""
    import hora.torch  # noqa: F401

    r, n = int(os.environ["HORA_RANK"]), int(os.environ["HORA_SIZE"])
    store = dist.FileStore(f"{os.environ['HORA_SECRET_FILE']}.late", n)
    if r == 1:
        time.sleep(3.5)
    for _ in range(3):
        dist.init_process_group("hora", store=store, rank=r, world_size=n, timeout=within(60))
        dist.all_reduce(x := torch.ones(1))
        assert x.item() == n
        dist.destroy_process_group()


def test_a_late_rank(ranks):
    ranks(2, work_late, timeout=90, env={"HORA_START_TIMEOUT": "3"})


# -- tensors, timeouts, aborts


def work_tensors():
    _, n = start(timeout=within(60))
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    with pytest.raises(
        ValueError, match='all_reduce: tensor is on meta; backend "hora" takes tensors of the host and of CUDA devices'
    ):
        backend.allreduce([torch.ones(3, device="meta")])
    strided = torch.arange(12.0).reshape(3, 4).t()[1:]
    dist.all_reduce(strided)
    assert strided.tolist() == (n * torch.arange(12.0).reshape(3, 4).t()[1:]).tolist()
    # a tensor that another process group of another timeout waits with
    quick = dist.new_group(timeout=within(1))
    if dist.get_rank() == 0:
        began = time.monotonic()
        with pytest.raises(dist.DistBackendError, match="rank 1"):
            dist.all_reduce(torch.ones(3), group=quick)
        assert time.monotonic() - began < 4
    dist.barrier()
    # an aborted group ends its waits at once; others go on
    doomed = dist.new_group()
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(3), group=doomed, async_op=True)
        doomed._get_backend(torch.device("cpu")).abort()
        with pytest.raises(dist.DistBackendError, match="was aborted on rank 0"):
            work.wait()
    dist.barrier()
    dist.all_reduce(x := torch.ones(2))
    assert x.tolist() == [n] * 2
    after_all("tensors")


def test_tensors_timeouts_and_aborts(ranks):
    ranks(2, work_tensors, timeout=90)


# -- torch itself


def importing(tmp_path, files):
    """How `import hora.torch` ends with a torch of these files."""
    for name, text in files.items():
        path = tmp_path / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    env = dict(os.environ) | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(hora.__file__).parents[1]}"}
    done = subprocess.run([sys.executable, "-c", "import hora.torch"], env=env, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


def test_torch_that_is_missing(tmp_path):
    said = importing(tmp_path, {"__init__.py": ""})
    assert said == "ImportError: import hora.torch: PyTorch is not installed; run `pip install torch` (2.4 or newer)"


def test_torch_that_is_too_old(tmp_path):
    said = importing(
        tmp_path, {"__init__.py": "__version__ = '2.3.1+cpu'", "distributed.py": "def is_available(): return True"}
    )
    assert (
        said
        == "ImportError: import hora.torch: PyTorch 2.3.1+cpu is too old; run `pip install --upgrade torch` (2.4 or newer)"
    )


def test_torch_that_is_broken(tmp_path):
    """What torch lacks itself is said by torch."""
    said = importing(tmp_path, {"__init__.py": "raise ImportError('libcudnn.so.9: cannot open shared object file')"})
    assert said == "ImportError: libcudnn.so.9: cannot open shared object file"
