"""Environments of jobs, made from wheels of this test's own: what is asked, what is shared, and what is said when it
cannot be."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from test_server import BIN, PATIENCE, Site

SHOW = "import sys, {0}; print('{0}', {0}.VERSION, sys.prefix.rpartition('/')[2])"


def wheel(folder: Path, name: str, version: str, needs: tuple[str, ...] = ()) -> None:
    """A wheel with one module, which knows its release."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {n}\n" for n in needs),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text)}")
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as z:
        for path, text in files.items():
            z.writestr(path, text)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    wheel(folder, "hello_tiny", "1.0")
    wheel(folder, "hello_tiny", "2.0")
    wheel(folder, "hello_needy", "1.0", ("hello-tiny<2",))
    wheel(folder, "hello_frame", "1.4")
    wheel(folder, "hello_frame", "1.9.2")
    wheel(folder, "hello_frame", "3.0")
    return folder


@pytest.fixture(scope="module")
def site(wheels: Path, tmp_path_factory: pytest.TempPathFactory):
    tmp = tmp_path_factory.mktemp("site")
    before = os.environ.copy()
    os.environ |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(wheels)}
    try:
        s = Site(tmp)
    finally:
        os.environ.clear()
        os.environ |= before
    yield s
    s.hora("down", "--now", cwd=tmp)
    s.server.wait(PATIENCE)


@pytest.mark.parametrize("works", [True, False])
def test_uv_installs_where_it_is_there(wheels: Path, tmp_path: Path, works: bool) -> None:
    """And pip does where uv fails. A program stands for uv, that keeps what it is asked."""
    uv = tmp_path / "uv"
    asks_pip = f'exec {sys.executable} -m pip --python "$5" install --quiet --no-deps -r "$8"'
    uv.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n{asks_pip if works else "echo no room; exit 2"}\n')
    uv.chmod(0o755)
    for name in ("environments", "requests"):
        (tmp_path / "place" / name).mkdir(parents=True)
    script = Path(__file__).parents[2] / "server/environment/make.py"
    text = script.read_text().replace('os.path.join(os.path.dirname(sys.executable), "uv")', repr(str(uv)))
    done = subprocess.run(
        [sys.executable, "-c", text, tmp_path / "place", "key"],
        input='{"pip": ["hello-needy"]}',
        env=os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    asked = (tmp_path / "asked").read_text().split()
    assert asked[:4] == ["pip", "install", "--quiet", "--python"] and asked[5:7] == ["--no-deps", "-r"], asked
    assert ("say uv does not install it (no room), and pip is asked" in done.stdout) != works
    made = json.loads((tmp_path / "place/requests/key.json").read_text())
    python = tmp_path / "place/environments" / made["environment"] / "bin/python"
    assert [line.split(" --hash")[0] for line in made["lock"]] == ["hello_needy==1.0", "hello_tiny==1.0"]
    shown = subprocess.run([python, "-c", SHOW.format("hello_tiny")], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("hello_tiny 1.0 "), shown


def run(site: Site, folder: Path, *args: str, code: int = 0) -> tuple[str, str]:
    """Submits and follows; what came on both streams."""
    done = subprocess.run(
        [BIN / "hora", "submit", "--follow", *args],
        cwd=folder,
        env=site.env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
    return done.stdout, done.stderr


def prefix(out: str) -> str:
    found = re.search(r"hello_\w+ \S+ (\S+)", out)
    assert found, out
    return found.group(1)


def test_packages_of_a_job(site: Site, tmp_path: Path) -> None:
    """A list is resolved, installed beside the interpreter's packages, and shared by its lock."""
    out, err = run(
        site,
        tmp_path,
        "--pip",
        "hello-needy",
        "--pip",
        "numpy",
        "-np",
        "2",
        "python",
        "-c",
        SHOW.format("hello_tiny") + "; import hora, numpy",
    )
    assert out.count("hello_tiny 1.0") == 2, out
    assert "environment: 2 packages beside the interpreter's: hello_needy==1.0, hello_tiny==1.0" in err, err
    first = prefix(out)
    job = json.loads(site.hora("jobs", "--all", "--json", cwd=tmp_path))[0]
    assert [line.split(" ")[0] for line in job["document"]["environment"]["lock"]] == [
        "hello_needy==1.0",
        "hello_tiny==1.0",
    ]
    assert "2 packages beside the pool's: hello_needy==1.0" in site.hora("job", str(job["id"]), cwd=tmp_path)
    (tmp_path / "other.txt").write_text("hello_tiny ==1.0  # old\n")
    (tmp_path / "requirements.txt").write_text("# what it needs\n-r other.txt\nhello_needy\\\n>=1\n")
    out, err = run(site, tmp_path, "--env", "requirements.txt", "python", "-c", SHOW.format("hello_needy"))
    assert prefix(out) == first and "packages beside the interpreter's:" not in err, (
        "another question with the same lock shares its environment"
    )
    out, err = run(site, tmp_path, "--pip", "hello-tiny", "python", "-c", SHOW.format("hello_tiny"))
    assert "hello_tiny 2.0" in out and prefix(out) != first
    story = site.hora("job", "3", cwd=tmp_path)
    assert (
        "its environment is made, or found" in story and "with 1 package beside the interpreter's, made in" in story
    ), story
    run(site, tmp_path, "--pip", "hello-tiny", "python", "-c", SHOW.format("hello_tiny"))
    assert "with 1 package beside the interpreter's, which was there" in site.hora("job", "4", cwd=tmp_path)


def test_hora_is_always_there(site: Site, tmp_path: Path) -> None:
    """What hora's own distributions stand for is not installed over them."""
    (tmp_path / "environment.yml").write_text(
        "name: e\nchannels: [conda-forge]\ndependencies:\n- python=3.6.2\n- pip\n- numpy\n- pip:\n  - azureml-defaults\n  - horovod==0.19.5\n  - hello_tiny\n"
    )
    out, err = run(
        site,
        tmp_path,
        "--env",
        "environment.yml",
        "python",
        "-c",
        SHOW.format("hello_tiny") + "; import hora, horovod.torch",
    )
    assert "hello_tiny 2.0" in out
    for said in (
        "Python 3.6.2 was asked for: the pool's interpreter is 3.",
        "conda's numpy is numpy ",
        "azureml-defaults is not installed: hora's distributions stand for it",
        "horovod==0.19.5 is not installed",
    ):
        assert said in err, (said, err)
    asks = {"azureml-defaults is": "hora-azureml", "horovod==0.19.5 is": "hora-compat"}
    for line, wheel in ((line, w) for line in err.splitlines() for ask, w in asks.items() if ask in line):
        there = any(importlib.metadata.distributions(name=wheel))
        assert (f"this interpreter lacks {wheel}: install that wheel beside it" in line) != there, line


def test_the_nearest_release_of_a_framework(site: Site, tmp_path: Path) -> None:
    from hora.server import Client

    url, token = Path(site.env["HOME"], ".config/hora/current").read_text().split()
    client = Client(url, token)
    for asked, taken in (("hello_frame==1.6", "1.9.2"), ("hello_frame==9.1", "3.0")):
        job = client.submit(
            ["python", "-c", SHOW.format("hello_frame")], folder=None, environment={"nearest": [asked, "torch==1.13"]}
        )
        text = "\n".join(line.text for line in client.logs(job.id, follow=True))
        assert f"hello_frame {taken} " in text, text
        assert "torch 1.13 was asked for: torch 2." in text and "of the pool's interpreter is taken" in text, text
        assert f"hello_frame {taken} is the nearest and is taken" in text, text


def test_what_cannot_be(site: Site, tmp_path: Path) -> None:
    """The job ends with the resolver's last lines; what is wrong from the start is not submitted."""
    _, err = run(site, tmp_path, "--pip", "hello-nobody==7", "true", code=1)
    assert (
        "No matching distribution found for hello-nobody==7: correct what --pip or --env asks for and submit the job again"
        in err
    ), err
    job = json.loads(site.hora("jobs", "--all", "--json", cwd=tmp_path))[0]
    assert job["state"] == "failed" and "No matching distribution" in job["text"]
    _, err = run(site, tmp_path, "--pip", "hello-needy", "--pip", "hello-tiny>=2", "true", code=1)
    assert "conflict" in err.lower(), err
    (tmp_path / "conda.yml").write_text("dependencies: [hello-science=1.2, {pip: [hello_tiny]}]\n")
    _, err = run(site, tmp_path, "--env", "conda.yml", "true", code=1)
    assert "the packages hello-science=1.2 are conda's, and this node has neither conda, mamba nor micromamba" in err, (
        err
    )
    (tmp_path / "bad.txt").write_text("hello_tiny\n-e .\n")
    (tmp_path / "lost.txt").write_text("hello_tiny\n-r missing.txt\n")
    (tmp_path / "odd.yml").write_text("dependencies: hello\n")
    for args, said in (
        (["--env", "./none.txt"], "none.txt: no such file"),
        (["--env", "bad.txt"], "bad.txt:2: -e .: an environment is shared by jobs and has no folder of yours"),
        (["--env", "lost.txt"], "missing.txt: no such file"),
        (["--env", "odd.yml"], "odd.yml:1: dependencies are a list"),
        (["--pip", "--user"], "--user is not taken for a job's environment"),
        (["--pip", "./here"], "name a published package"),
    ):
        done = subprocess.run(
            [BIN / "hora", "submit", *args, "true"],
            cwd=tmp_path,
            env=site.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 2 and said in done.stderr, (args, done.stderr)


def test_an_environment_stays_while_it_fits(site: Site, tmp_path: Path) -> None:
    """It is asked anew when the interpreter's packages have changed, and the ones that nobody has used for long are
    removed."""
    old = []
    for i in range(31):
        one = tmp_path / "environments" / f"old{i}"
        one.mkdir(parents=True)
        (one / "complete").touch()
        os.utime(one / "complete", (1_000_000 + i, 1_000_000 + i))
        old.append(one)

    def make() -> str:
        question = json.dumps({"python": "2.7"})  # which asks for no package
        command = [BIN / "hora", "__environment", tmp_path]
        done = subprocess.run(
            command,
            input=question,
            env=site.env | {"PATH": f"{BIN}:{site.env['PATH']}"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    first = make()
    assert "made in" in first and "Python 2.7 was asked for" in first
    assert [one.name for one in old if not one.exists()] == ["old0", "old1"]
    assert "which was there" in make()
    request = next((tmp_path / "requests").glob("*.json"))
    said = json.loads(request.read_text())
    request.write_text(json.dumps(said | {"site": dict.fromkeys(said["site"], 1)}))  # as if a package had come
    assert "made in" in make() and json.loads(request.read_text()) == said


def test_conda_is_asked_where_it_is(site: Site, wheels: Path, tmp_path: Path) -> None:
    """A stand-in for conda makes an environment as it would; the packages of the pool's interpreter are seen through
    it."""
    tool = tmp_path / "bin" / "conda"
    tool.parent.mkdir()
    (tool.parent / "hello_conda.py").write_text("VERSION = 'c'\n")
    tool.write_text(
        '#!/bin/sh\necho "$@" > "$0.said"\nwhile [ "$1" != --prefix ]; do shift; done\n'
        f'{BIN}/python -m venv --without-pip "$2" && cp "$(dirname "$0")/hello_conda.py" "$2"/lib/python3*/site-packages/\n'
    )
    tool.chmod(0o755)
    place = tmp_path / "place"
    place.mkdir()
    settings = {"PATH": f"{tool.parent}:{BIN}:{site.env['PATH']}", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    done = subprocess.run(
        [BIN / "hora", "__environment", place],
        input=json.dumps({"conda": ["hello_conda=1.2"], "channels": ["mine"], "pip": ["hello_tiny"]}),
        env=site.env | settings,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    made = next((place / "environments").glob("*/bin/python"))
    program = "import hello_conda, hello_tiny, hora; print('all there')"
    out = subprocess.run([made, "-c", program], env=site.env, capture_output=True, text=True, timeout=PATIENCE)
    assert "all there" in out.stdout, out.stderr
    said = Path(f"{tool}.said").read_text()
    assert (
        said.startswith("create --yes --quiet --prefix") and "--channel mine" in said and "pip hello_conda=1.2" in said
    ), said
