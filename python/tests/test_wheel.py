"""The wheels of dist/ (`make wheel`), installed into empty environments outside the tree."""

import hashlib
import importlib.util
import os
import platform
import resource
import shutil
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
MACHINE = platform.machine()
SOAK = os.environ.get("HORA_SOAK") == "1"


def wheel(pattern: str) -> Path:
    found = sorted(DIST.glob(pattern))
    assert len(found) == 1, f"dist/ holds {[p.name for p in found]} for {pattern}; run `make wheel` first"
    return found[0]


def clean() -> dict[str, str]:
    """An environment in which nothing of the tree can be found."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("HORA", "PYTHON"))}


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """An empty environment with hora installed from dist/, without an index."""
    home = tmp_path_factory.mktemp("empty")
    venv.create(home / "venv", with_pip=True)
    begun, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [home / "venv/bin/pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--find-links", DIST, "hora"],
        check=True, env=clean(), cwd=home,
    )  # fmt: skip
    took, now = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime  # whatever else the machine does meanwhile
    print(f"installing hora into an empty environment: {took:.2f} s, of the processor {worked:.2f} s (goal 3 s)")
    assert worked < 9, f"installing took {worked:.1f} s of the processor, {took:.1f} s in all"
    installed = run(home / "venv/bin/pip", "list", "--format=freeze", cwd=home)
    assert {line.split("==")[0] for line in installed.split()} <= {"hora", "pip", "setuptools"}, (
        installed
    )  # nothing else is needed
    return home / "venv/bin"


@pytest.fixture(scope="module")
def full(empty):
    """The same with hora-compat: what it depends on from the index, itself from dist/."""
    metadata = next(n for n in zipfile.ZipFile(wheel("hora_compat-*.whl")).namelist() if n.endswith("METADATA"))
    text = zipfile.ZipFile(wheel("hora_compat-*.whl")).read(metadata).decode()
    needs = [
        line.split(": ")[1] for line in text.splitlines() if line.startswith("Requires-Dist: ") and "hora" not in line
    ]
    assert needs == ["cloudpickle", "psutil", "pyyaml"]
    pip = [empty / "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *needs], check=True, env=clean(), cwd=empty)
    subprocess.run([*pip, "--no-index", "--find-links", DIST, "hora-compat"], check=True, env=clean(), cwd=empty)
    return empty


def run(*command, cwd) -> str:
    done = subprocess.run(command, cwd=cwd, env=clean(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_petastorms_names():
    """The wheel with Petastorm's names: every module, its programs, and what it needs."""
    with zipfile.ZipFile(wheel("hora_petastorm-*-py3-none-any.whl")) as z:
        names = set(z.namelist())
        text = "".join(z.read(n).decode() for n in names if n.endswith(("METADATA", "entry_points.txt")))
    for module in (
        "reader",
        "pytorch",
        "tf_utils",
        "unischema",
        "spark/spark_dataset_converter",
        "etl/dataset_metadata",
        "tools/copy_dataset",
    ):
        assert f"petastorm/{module}.py" in names
    assert "petastorm-generate-metadata.py = petastorm.etl.petastorm_generate_metadata:main" in text
    for needed in ("hora==", "numpy", "pandas", "pillow", "pyarrow"):
        assert f"Requires-Dist: {needed}" in text


def test_azuremls_names():
    """The wheel with the names of Azure Machine Learning's SDK: its modules, and what it needs."""
    with zipfile.ZipFile(wheel("hora_azureml-*-py3-none-any.whl")) as z:
        names = set(z.namelist())
        text = "".join(z.read(n).decode() for n in names if n.endswith("METADATA"))
    for module in ("core/run", "core/compute/__init__", "core/runconfig", "train/dnn", "train/estimator", "widgets"):
        assert f"azureml/{module}.py" in names
    assert [line for line in text.splitlines() if line.startswith("Requires-Dist: ")][1:] == ["Requires-Dist: pyyaml"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_contents(machine):
    path = wheel(f"hora-*manylinux_2_17_{machine}*.whl")
    assert path.stat().st_size < 20e6
    with zipfile.ZipFile(path) as z:
        names = z.namelist()
        version = (ROOT / "VERSION").read_text().strip()
        info = f"hora-{version}.dist-info"
        assert {
            "hora/libhora.so",
            "hora/libhora_tf.so",
            "hora/_fast.abi3.so",
            "hora/_fast.pyi",
            "hora/hora.h",
            "hora/hora_data.h",
            "hora_legacy.pth",
            "hora_jax.pth",
            "_hora_jax.py",
            "hora/py.typed",
            f"hora-{version}.data/scripts/hora",
        } <= set(names)
        program = z.getinfo(f"hora-{version}.data/scripts/hora")
        assert program.external_attr >> 16 & 0o777 == 0o755
        assert program.file_size <= 20e6, f"the program hora has {program.file_size} bytes: what has come into it?"
        assert "hora = hora.torch:register" in z.read(f"{info}/entry_points.txt").decode()
        wheel_file = z.read(f"{info}/WHEEL").decode()
        assert "Root-Is-Purelib: false" in wheel_file and wheel_file.count("Tag: ") == 2
        assert all(i.date_time == (2020, 1, 1, 0, 0, 0) for i in z.infolist())
        listed = dict(line.split(",")[:2] for line in z.read(f"{info}/RECORD").decode().splitlines())
        assert set(listed) == set(names)
        machine_code = {"x86_64": 62, "aarch64": 183}[machine]
        assert z.getinfo("hora/libhora_tf.so").file_size < 64 << 10, "TensorFlow loads it for one call of the library's"
        for elf in ("hora/libhora.so", "hora/libhora_tf.so", "hora/_fast.abi3.so", f"hora-{version}.data/scripts/hora"):
            head = z.read(elf)[:20]
            assert head[:4] == b"\x7fELF" and int.from_bytes(head[18:20], "little") == machine_code


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_contents_of_the_server(machine):
    """The wheel with horad: that program alone, beside the wheel hora of the same version, which has no database."""
    path = wheel(f"hora_server-*manylinux_2_17_{machine}*.whl")
    assert path.stat().st_size < 20e6
    version = (ROOT / "VERSION").read_text().strip()
    info, name = f"hora_server-{version}.dist-info", f"hora_server-{version}.data/scripts/horad"
    with zipfile.ZipFile(path) as z:
        assert {n for n in z.namelist() if not n.startswith(f"{info}/")} == {name}
        text = z.read(f"{info}/METADATA").decode()
        assert [line for line in text.splitlines() if line.startswith(("Name", "Version", "Requires-Dist"))] == [
            "Name: hora-server",
            f"Version: {version}",
            f"Requires-Dist: hora=={version}",
        ]
        listed = dict(line.split(",")[:2] for line in z.read(f"{info}/RECORD").decode().splitlines())
        assert set(listed) == set(z.namelist())
        assert z.getinfo(name).external_attr >> 16 & 0o777 == 0o755
        program = z.read(name)
    machine_code = {"x86_64": 62, "aarch64": 183}[machine]
    assert program[:4] == b"\x7fELF" and int.from_bytes(program[18:20], "little") == machine_code
    with zipfile.ZipFile(wheel(f"hora-*manylinux_2_17_{machine}*.whl")) as z:
        client = z.read(f"hora-{version}.data/scripts/hora")
    for words in (b"modernc.org/sqlite", b"danielgtaylor/huma"):
        assert words in program and words not in client


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_auditwheel_agrees(machine):
    path = wheel(f"hora-*manylinux_2_17_{machine}*.whl")
    said = run(sys.executable, "-m", "auditwheel", "show", path, cwd=ROOT)
    assert f'the following platform tag: "manylinux_2_17_{machine}"' in " ".join(said.split()), said


def test_in_an_empty_environment(empty, tmp_path):
    script = tmp_path / "first.py"
    script.write_text("import hora\nhora.init()\nprint('sum', hora.allreduce(hora.rank() + 1.0))\n")
    out = run(empty / "hora", "run", "-np", "2", empty / "python", script, cwd=tmp_path)
    assert out.count("sum 3.0") == 2
    where = run(empty / "python", "-c", "import hora; print(hora.__file__, hora.__version__)", cwd=tmp_path)
    assert str(empty.parent) in where and (ROOT / "VERSION").read_text().strip() in where
    assert run(empty / "python", "-m", "hora", "version", cwd=tmp_path) == run(empty / "hora", "version", cwd=tmp_path)


def test_old_names_before_the_first_line(empty, tmp_path):
    look = "import sys; print('hora' in sys.modules, [type(f).__module__ for f in sys.meta_path][0])"
    script = tmp_path / "look.py"
    script.write_text(look)
    assert "True hora._legacy" in run(empty / "hora", "run", "--legacy", "tf1", empty / "python", script, cwd=tmp_path)
    assert run(empty / "python", script, cwd=tmp_path).startswith("False ")


def interpreters() -> list[str]:
    """One Python of each version that this system has."""
    found = {}
    for minor in range(10, 15):
        name = f"python3.{minor}"
        for place in [*sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/{name}")), shutil.which(name)]:
            if place and subprocess.run([place, "-c", "import venv"], capture_output=True).returncode == 0:
                found[name] = str(place)
    return list(found.values()) or [sys.executable]


FIRST = """
import array, sys
import hora
from hora import _abi
hora.init()
x = array.array("d", [hora.rank() + 1.0] * 3)
for want in (3.0, 6.0, 12.0):
    assert hora.allreduce(x, out=x) is x and list(x) == [want] * 3
assert list(hora.allreduce(x, async_=True).wait()) == [24.0] * 3
assert hora.allgather_object(hora.rank()) == [0, 1]
try:
    hora.allreduce(array.array("d", [0.0] * (3 + hora.rank())))
except hora.MismatchError as e:
    assert "rank 0" in str(e) and "rank 1" in str(e)
    print("well", "fast" if _abi._fast else "ctypes", sys.version_info[:2])
"""


@pytest.mark.parametrize("python", interpreters())
def test_every_python(python, tmp_path):
    """One wheel for every Python that is there, its extension module included."""
    subprocess.run([python, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, env=clean())
    here = tmp_path / "venv/bin"
    pip = [sys.executable, "-m", "pip", "--python", here / "python", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-index", "--find-links", DIST, "hora"], check=True, env=clean())
    (tmp_path / "first.py").write_text(FIRST)
    out = run(here / "hora", "run", "-np", "2", here / "python", tmp_path / "first.py", cwd=tmp_path)
    assert out.count("well fast") == 2, out


def test_the_five_lines_of_the_readme(empty, tmp_path):
    """They run from the wheel, which lets torch find the backend; torch itself is borrowed from the tests'
    environment."""
    import torch

    text = (ROOT / "README.md").read_text()
    five = text.split("**PyTorch in five lines**")[1].split("```python\n")[1].split("```")[0].splitlines()
    assert len(five) == 5 and "hora.torch" not in "".join(five)
    borrow = f"import sys; sys.path.append({str(Path(torch.__file__).parents[1])!r})"
    look = "print('gradient', dist.get_backend(), model.module.weight.grad.double().sum().item())"
    (tmp_path / "five.py").write_text("\n".join([borrow, *five[:4], look, five[4]]))
    out = run(empty / "hora", "run", "-np", "2", empty / "python", tmp_path / "five.py", cwd=tmp_path)
    said = [line.split("gradient ")[1] for line in out.splitlines() if "gradient " in line]
    assert len(said) == 2 and said[0] == said[1] and said[0].startswith("hora "), out


STEPS = """
import torch, torch.distributed as dist, hora.torch
dist.init_process_group("hora")
torch.manual_seed(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    opt.zero_grad()
    (model(torch.full((2, 4), 1.0 + dist.get_rank())) ** 2).mean().backward()
    opt.step()
print("torch", torch.__version__.split("+")[0], f"{sum(p.sum().item() for p in model.parameters()):.5f}", hora.__file__)
dist.destroy_process_group()
"""


TF_STEPS = """
import tensorflow as tf, hora, hora.tensorflow
hora.init()
w = tf.Variable([[1.0], [-1.0]])
for step in range(20):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.fill([2, 2], 1.0 + hora.rank()), w) - 3.0))
    w.assign_sub(0.05 * hora.tensorflow.DistributedGradientTape(tape).gradient(loss, [w])[0])
print("tensorflow", tf.__version__, f"{float(tf.reduce_sum(w)):.5f}", hora.__file__)
"""

JAX_STEPS = """
import jax, jax.numpy as jnp, optax, hora, hora.jax
hora.init()
w, x = jnp.array([[1.0], [-1.0]]), jnp.full((2, 2), 1.0 + hora.rank())
tx = hora.jax.DistributedOptimizer(optax.sgd(0.05))
state = tx.init(w)
@jax.jit
def step(w, state):
    updates, state = tx.update(jax.grad(lambda w: ((x @ w - 3.0) ** 2).mean())(w), state)
    return optax.apply_updates(w, updates), state
for i in range(20):
    w, state = step(w, state)
print("jax", jax.__version__, f"{float(w.sum()):.5f}", hora.__file__)
"""


@pytest.mark.parametrize(
    ("framework", "steps", "releases"),
    [
        ("torch", STEPS, ("2.4", "2.8")),
        ("tensorflow", TF_STEPS, ("2.12", "2.16")),
        ("jax", JAX_STEPS, ("0.5", "0.7")),
    ],
)
def test_a_framework_is_upgraded_in_place(tmp_path, framework, steps, releases):
    """hora, installed before any framework, works with one release, and with the next one put in its place.

    The wheels are those of `make matrix`, fetched once.
    """
    if not SOAK:
        pytest.skip("make soak")
    spec = importlib.util.spec_from_file_location("matrix", ROOT / "tools/matrix/run.py")
    matrix = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(matrix)
    cache = Path(run("sh", "tools/deps.sh", "path", "venv", cwd=ROOT).strip()).parent
    venv.create(tmp_path / "venv", with_pip=True)
    here = tmp_path / "venv/bin"
    matrix.pip(here / "python", "install", "--no-index", "--find-links", str(DIST), "hora")
    (tmp_path / "train.py").write_text(steps)
    said = []
    for release in releases:
        wheels = matrix.fetch(cache, ROOT / f"tools/matrix/{framework}-{release}.txt")
        matrix.pip(here / "python", "install", "--upgrade", "--no-compile", *wheels)
        out = run(here / "hora", "run", "-np", "2", here / "python", tmp_path / "train.py", cwd=tmp_path)
        lines = [
            line.split(f"{framework} ")[1].split() for line in out.splitlines() if f"{framework} {release}" in line
        ]
        assert len(lines) == 2 and lines[0] == lines[1], out
        assert str(tmp_path) in lines[0][2], out
        said.append(float(lines[0][1]))
    assert abs(said[0] - said[1]) < 1e-4, said
    shutil.rmtree(tmp_path / "venv")  # some GB, which pytest would keep


def test_compat_in_an_empty_environment(full, tmp_path):
    """Horovod's launcher and sparkdl's runner, without any framework."""
    script = tmp_path / "notebook.py"
    script.write_text(
        "from sparkdl import HorovodRunner\n"
        "def train(x):\n"
        "    import hora\n"
        "    hora.init()\n"
        "    return hora.allreduce(hora.rank() + x)\n"
        "print('result', HorovodRunner(np=-2).run(train, x=1.0))\n"
    )
    assert "result 3.0" in run(full / "python", script, cwd=tmp_path)
    run(full / "python", "-c", "import horovod, horovod.runner, sparkdl", cwd=tmp_path)
    script = tmp_path / "first.py"
    script.write_text("import hora\nhora.init()\nprint('sum', hora.allreduce(hora.rank() + 1.0))\n")
    out = run(full / "horovodrun", "-np", "2", "-H", "localhost:2", full / "python", script, cwd=tmp_path)
    assert out.count("sum 3.0") == 2


def test_an_example_runs_from_the_wheels(full, tmp_path):
    """As it stands, from a folder of its own; torch is borrowed, behind what the environment has itself."""
    import torch

    example = Path(shutil.copytree(ROOT / "examples/32-horovod-runner", tmp_path / "example"))
    site = run(full / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    borrowed = Path(site, "borrowed.pth")
    borrowed.write_text(f"{Path(torch.__file__).parents[1]}\n")
    try:
        where = run(
            full / "python", "-c", "import hora, horovod; print(hora.__file__, horovod.__file__)", cwd=tmp_path
        ).split()
        assert all(w.startswith(str(full.parent)) for w in where), where
        out = run(full / "python", "notebook.py", cwd=example)
    finally:
        borrowed.unlink()
    assert "two processes agree" in out, out


def foreign(folder: Path) -> Path:
    """A wheel of somebody else's horovod."""
    path = folder / "horovod-0.28.1-py3-none-any.whl"
    files = {
        "horovod/__init__.py": "__version__ = '0.28.1'\n",
        "horovod-0.28.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n",
        "horovod-0.28.1.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as z:
        for name, text in files.items():
            z.writestr(name, text)
        record = "".join(f"{n},,\n" for n in (*files, "horovod-0.28.1.dist-info/RECORD"))
        z.writestr("horovod-0.28.1.dist-info/RECORD", record)
    return path


def test_a_foreign_horovod_over_ours_is_named(full, tmp_path):
    cure = [
        "pip uninstall -y horovod",
        "pip install --force-reinstall --no-deps --no-index --find-links dist hora-compat",
    ]
    pip = [full / "pip", "-q", "--disable-pip-version-check"]
    run(*pip, "install", "--no-index", foreign(tmp_path), cwd=tmp_path)
    try:
        done = subprocess.run(
            [full / "python", "-c", "import horovod, hora; hora.init()"],
            cwd=tmp_path,
            env=clean(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0 and all(c in done.stderr for c in cure), done.stderr
        done = subprocess.run(
            [full / "python", "-c", "import hora"],
            cwd=tmp_path,
            env=clean(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0 and all(c in done.stderr for c in cure), done.stderr
        env = clean() | {"PATH": f"{full}:{os.environ['PATH']}"}
        done = subprocess.run(
            [full / "hora", "doctor"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
        )
        assert all(c in done.stdout + done.stderr for c in cure), done.stdout + done.stderr
    finally:
        run(*pip, "uninstall", "-y", "horovod", cwd=tmp_path)  # takes our files of the same names with it
        run(
            *pip,
            "install",
            "--no-index",
            "--find-links",
            DIST,
            "--force-reinstall",
            "--no-deps",
            "hora-compat",
            cwd=tmp_path,
        )
    done = subprocess.run(
        [full / "python", "-c", "import horovod, hora; hora.init()"],
        cwd=tmp_path,
        env=clean(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr  # cured


def test_another_version_is_refused(full, tmp_path):
    """A package and a library of different versions do not work together by chance."""
    library = tmp_path / "libhora.so"
    source = tmp_path / "old.c"
    source.write_text("int hora_abi(void) { return 999; }\n")
    subprocess.run(["gcc", "-shared", "-o", library, source], check=True)
    code = "import hora\ntry:\n    hora.init()\nexcept hora.VersionError as e:\n    print(e)"
    done = subprocess.run(
        [full / "python", "-c", code],
        env=clean() | {"HORA_LIBRARY": str(library)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert "interface 999" in done.stdout and "reinstall hora" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("system", "says"),
    [
        ("os.confstr = lambda _: None", "another C library (musl, as Alpine has); use an image with glibc"),
        ("os.confstr = lambda _: 'glibc 2.12'", "this system has glibc 2.12"),
        ("platform.system = lambda: 'Darwin'", "this is Darwin on"),
        ("platform.machine = lambda: 'riscv64'", "this is Linux on riscv64"),
        ("", "upgrade pip"),
    ],
    ids=["musl", "old glibc", "macOS", "riscv64", "pip"],
)
def test_where_no_wheel_fits_pip_says_why(system, says, empty, tmp_path):
    """On such a system pip finds the source distribution only; what it runs is told here which system that is."""
    source = next(DIST.glob("hora-*.tar.gz"))
    with tarfile.open(source) as t:
        t.extractall(tmp_path, filter="data") if hasattr(tarfile, "data_filter") else t.extractall(tmp_path)
    tree = next(tmp_path.glob("hora-*"))
    with (tree / "refuse.py").open("a") as f:
        f.write(f"\n{system}\n")
    pip = [empty / "pip", "install", "--disable-pip-version-check", "--no-index", "--target", tmp_path / "t", tree]
    done = subprocess.run(pip, env=clean(), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and "[1 lines of output]" in done.stderr and says in done.stderr, done.stderr


def sources(to: Path) -> Path:
    """A copy of the tree as it stands, in another folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def built(tree: Path) -> dict[str, Path]:
    """The wheels of a tree; in the soak for both machines and with nothing cached."""
    cold = {"GOCACHE": str(tree.parent / "go"), "ZIG_GLOBAL_CACHE_DIR": str(tree.parent / "zig")} if SOAK else {}
    build = [
        sys.executable,
        tree / "tools/wheel/build.py",
        "--machine",
        "all" if SOAK else MACHINE,
        "--dist",
        tree / "dist",
    ]
    done = subprocess.run(build, env=os.environ | cold, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(tree.parent / "go", ignore_errors=True)
    return {p.name: p for p in (*tree.glob("dist/*.whl"), *tree.glob("dist/*.tar.gz"))}


# Bound so that a user who is not root finds them: Go's modules, which are read only, a folder for what Go has compiled,
# and a Python; then everything of root's is laid down.
AS_NOBODY = """
mount --bind "$1" "$4/mod" && mount -o remount,bind,ro "$4/mod" && mount --bind "$2" "$4/compiled" && mount --bind "$3" "$4/python" || exit 99
folder=$4; shift 4
cd "$folder/tree" && exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all -- "$@"
"""


def test_make_wheel_needs_go_a_compiler_and_python(tmp_path_factory):
    """`make wheel` in a copy of the tree, by a user who is not root and has a new home, with nothing else in PATH.

    What Go compiled for that user is kept for the next time, as for anybody; in the soak there is nothing.
    """
    home = tmp_path_factory.mktemp("make")
    for name in ("tree", "home", "bin", "mod", "compiled", "python"):
        (home / name).mkdir()
    sources(home / "tree")
    for tool in ("go", "cc", "gcc", "as", "ld", "make", "git"):  # a C compiler is also its assembler and its linker
        (home / "bin" / tool).symlink_to(Path(shutil.which(tool)).resolve())
    asked = subprocess.run(["go", "env", "GOMODCACHE", "GOCACHE"], check=True, capture_output=True, text=True).stdout
    modules, compiled = asked.split()
    given = {"HOME": home / "home", "PATH": home / "bin", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
    command = ["make", "wheel"]
    root = os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
    if root:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        kept = Path(os.environ.get("HORA_CACHE") or Path(caches, "hora")) / "compiled-by-nobody"
        if SOAK:
            kept = home / "cold"
        kept.mkdir(parents=True, exist_ok=True)
        (home / "bin/python3").symlink_to(home / "python/bin/python3")
        for folder in (home, *home.parents):  # pytest's, which are their owner's alone
            if folder.stat().st_mode & 0o001:
                break
            folder.chmod(folder.stat().st_mode | 0o011)
        subprocess.run(["chown", "-R", "65534:65534", home, kept], check=True)
        given |= {"GOMODCACHE": home / "mod", "GOCACHE": home / "compiled"}
        around = ["unshare", "-m", "sh", "-c", AS_NOBODY, "sh", modules, kept, sys.base_prefix, home]
    else:
        (home / "bin/python3").symlink_to(sys.executable)
        given |= {"GOMODCACHE": modules, "GOCACHE": home / "compiled" if SOAK else compiled}
        around = []
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*around, shutil.which("env"), "-i", *(f"{k}={v}" for k, v in given.items()), *command],
        cwd=home / "tree", capture_output=True, text=True,
    )  # fmt: skip
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"make wheel: {worked:.0f} s of the processor (goal: 90 s in all)")
    assert worked < 3 * 90
    named = [home / "tree" / line.split()[0] for line in done.stdout.splitlines() if line.startswith("dist/hora-")]
    found = [p for p in named if p.suffix == ".whl"]
    assert len(found) == 1 and found[0].is_file(), done.stdout
    assert found[0].stat().st_uid == (65534 if root else os.geteuid())
    with zipfile.ZipFile(found[0]) as z:
        z.extractall(home / "installed")
    code = "import hora; hora.init(); print(hora.size(), hora.allreduce(2.0), hora.__file__)"
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=home, env=clean() | {"PYTHONPATH": str(home / "installed")},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert said.stdout.split() == ["1", "2.0", str(home / "installed/hora/__init__.py")], said.stderr


def test_same_sources_same_bytes(tmp_path):
    """Whole wheels, built in two folders, are the same bit for bit."""
    one = sources(tmp_path / "1" / "tree")
    two = shutil.copytree(one, tmp_path / "2" / "a folder of another name")
    first, again = built(one), built(two)
    assert set(first) == set(again) and len(first) == (8 if SOAK else 6)
    for name, path in first.items():
        if path.read_bytes() == again[name].read_bytes():
            print(name, hashlib.sha256(path.read_bytes()).hexdigest())
            continue
        with zipfile.ZipFile(path) as a, zipfile.ZipFile(again[name]) as b:
            differ = [n for n in a.namelist() if n not in b.namelist() or a.read(n) != b.read(n)]
        pytest.fail(f"{name}: {differ or 'order or times'} depend on where it was built")


def test_compat_wheel():
    path = wheel("hora_compat-*-py3-none-any.whl")
    with zipfile.ZipFile(path) as z:
        script = next(n for n in z.namelist() if n.endswith("scripts/horovodrun"))
        assert z.read(script).decode() == '#!/bin/sh\nexec "$(dirname "$0")/hora" horovodrun "$@"\n'
        assert z.getinfo(script).external_attr >> 16 & 0o777 == 0o755
        metadata = z.read(next(n for n in z.namelist() if n.endswith("METADATA"))).decode()
        assert "Requires-Dist: hora==" in metadata and "Requires-Dist: cloudpickle" in metadata
