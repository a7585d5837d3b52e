"""The examples, run as their first lines say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
SOAK = os.environ.get("HORA_SOAK") == "1"


def program() -> str:
    beside = Path(sys.executable).parent / "hora"
    found = str(beside) if beside.exists() else shutil.which("hora")
    assert found, "the program hora is neither beside Python nor on PATH: make wheel, and install it"
    return found


def run(*command: str, timeout: int = 100) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HOROVOD_", "HORA_")) or k == "HORA_LIBRARY"}
    tree = [str(ROOT / "python"), str(ROOT / "python" / "compat")] if (ROOT / "python/hora/libhora.so").exists() else []
    paths = [*tree, env.get("PYTHONPATH", "")]
    env |= {"PYTHONPATH": os.pathsep.join(p for p in paths if p), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, cwd=EXAMPLES, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, (
        f"{' '.join(command)} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    return done.stdout + done.stderr


def ranks(*script: str, n: int = 2, how: str = "run") -> str:
    return run(program(), how, "-np", str(n), sys.executable, *script)


def test_ddp_under_both_launchers_and_both_backends():
    out = [
        ranks("20-ddp/train.py"),
        run(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "20-ddp/train.py"),
    ]
    if SOAK:  # test_torch_ddp.py compares trainings on both
        out.append(ranks("20-ddp/train.py", "gloo"))
    assert [re.search(r"(\w+): 2 ranks", o)[1] for o in out] == ["hora", "hora", "gloo"][: len(out)]
    sums = [float(re.search(r"checksum (-?[\d.]+)", o)[1]) for o in out]
    assert sums[0] == sums[1] and abs(sums[0] - sums[-1]) < 1e-3, sums


def test_optimizer_alone_and_together():
    assert "step 150" in run(sys.executable, "21-optimizer/train.py")
    assert "step 150" in ranks("21-optimizer/train.py")


def test_sharded_and_gpt():
    assert "33153 of 66177 parameters on rank 0" in ranks("22-fsdp/train.py")
    assert "it writes: this is the" in ranks("23-chargpt/train.py")


def test_elastic_with_a_kill(tmp_path):
    out = run(
        program(), "run", "-np", "2", "--restarts", "3", sys.executable, "24-elastic/train.py", str(tmp_path / "killed")
    )
    assert "rank 1 of 2 at step 30" in out and "weights equal on 2 ranks" in out


def test_notebook():
    assert "both processes found [1.0, -2.0, 3.0, 0.5]" in run(sys.executable, "26-notebook/notebook.py")


def test_join():
    assert "rank 1 came last" in ranks("25-join/train.py")


@pytest.mark.parametrize("flags", [[], ["--use-adasum"], ["--fp16-allreduce", "--gradient-predivide-factor", "2.0"]])
def test_classic_horovod_script(flags):
    if flags and not SOAK:
        pytest.skip("make soak: the optimizer's own tests have these settings")
    out = ranks("30-horovod-pytorch/train.py", *flags, how="horovodrun")
    assert float(re.findall(r"Accuracy: ([\d.]+)%", out)[-1]) > 90


def test_horovod_runner():
    assert "two processes agree" in run(sys.executable, "32-horovod-runner/notebook.py")
