"""Plain multi-process JAX under `hora run`: initialize() without arguments, beside hora and without it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PLAIN = """
{first}
import jax, os, sys
import numpy as np

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize()
r, n = int(os.environ["HORA_RANK"]), int(os.environ["HORA_SIZE"])
assert (jax.process_index(), jax.process_count(), len(jax.devices()), len(jax.local_devices())) == (r, n, n, 1)
assert int(os.environ["JAX_COORDINATOR_ADDRESS"].rpartition(":")[2]) == int(os.environ["MASTER_PORT"]) - 1
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("r",))
parts = jax.sharding.PartitionSpec("r")
total = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "r"), mesh=mesh, in_specs=parts, out_specs=parts))
here = jax.sharding.NamedSharding(mesh, parts)
for turn in range(5):
    x = jax.make_array_from_process_local_data(here, np.full(3, 10.0 * turn + r, np.float32))
    got = np.asarray(total(x).addressable_data(0))
    assert (got == sum(10.0 * turn + q for q in range(n))).all(), got
if "hora" in sys.modules:  # both in one program
    import hora, hora.jax
    hora.init()
    for turn in range(5):
        x = jax.device_put(np.full(3, r + 1.0, np.float32), jax.local_devices()[0])
        assert float(jax.jit(hora.jax.allreduce)(x)[0]) == n * (n + 1) / 2
jax.distributed.shutdown()
print("well", "hora" in sys.modules)
"""

# hora_jax.pth of the wheel, as site reads it, in processes that have hora nowhere else.
PTH = """
import site, tempfile, pathlib
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "hora_jax.pth").write_text({line!r})
    site.addsitedir(folder)
"""


def line() -> str:
    found = re.search(r'"hora_jax\.pth",\s*(\'.*\'),', (ROOT / "tools/wheel/build.py").read_text())
    assert found
    return eval(found[1])


@pytest.mark.parametrize("hora", [False, True])
def test_initialize_finds_the_job(run, hora):
    first = "import hora" if hora else PTH.format(line=line())
    done = run(PLAIN.format(first=first))
    assert done.stdout.count(f"well {hora}") == 2
    assert "does the same work" not in done.stderr and "did the same" not in done.stderr, done.stderr


def test_a_job_inside_slurm_is_horas(run):
    """The variables of a scheduler that started the launcher do not win."""
    slurm = {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_NODELIST": "nowhere",
        "SLURM_NTASKS": "9",
        "SLURM_PROCID": "5",
        "SLURM_LOCALID": "5",
    }
    first = f"import os; os.environ |= {slurm!r}; import hora"
    assert run(PLAIN.format(first=first)).stdout.count("well") == 2


LOCAL = """
import os
from hora import _hora_jax


class Base:
    _cluster_types = []
    def __init_subclass__(cls):
        Base._cluster_types.append(cls)


class Other(Base):
    pass


module = type("m", (), {"ClusterEnv": Base})
_hora_jax.give(module)
_hora_jax.give(module)
ours = Base._cluster_types[0]
assert [c.__name__ for c in Base._cluster_types] == ["HoraCluster", "Other"]
for local, visible, want in (("1", None, None), ("4", None, 2), ("4", "2", None), ("4", "0,1,2,3", 2)):
    os.environ |= {"HORA_LOCAL_SIZE": local, "HORA_LOCAL_RANK": "2", "CUDA_VISIBLE_DEVICES": visible or ""}
    if visible is None:
        del os.environ["CUDA_VISIBLE_DEVICES"]
    assert ours.get_local_process_id() == want, (local, visible)
print("well")
"""


def test_which_accelerator(run):
    """A process alone on its host, or given devices of its own, takes all it sees; else that of its local rank."""
    assert "well" in run(LOCAL, "-np", "1").stdout
