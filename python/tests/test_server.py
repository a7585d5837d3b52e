"""The server as the wheels install it: hora up, a job file, what came of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from beside import TREE

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PATIENCE = 120


class Site:
    """A server in a folder of its own, and its user."""

    def __init__(self, tmp: Path, slots: int = 2, *flags: str) -> None:
        assert (BIN / "horad").exists(), f"{BIN}/horad is missing: install the wheel hora-server"
        home = tmp / "home"
        home.mkdir()
        drop = {"XDG_CONFIG_HOME", "XDG_DATA_HOME", "HORA_SERVER", "HORA_TOKEN"}
        self.env = {k: v for k, v in os.environ.items() if k not in drop} | {"HOME": str(home)}
        self.env["PYTHONPATH"] = os.pathsep.join([*TREE, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self.server = subprocess.Popen(
            [BIN / "hora", "up", "--dir", tmp / "server", "--port", "0", "--slots", str(slots), *flags],
            env=self.env,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.server.stdout
        first = self.server.stdout.readline()
        assert first.startswith("hora: serving http" if flags else "hora: serving http://127.0.0.1:"), first
        self.url = first.split()[-1]

    def hora(self, *args: str, cwd: Path, code: int = 0) -> str:
        done = subprocess.run(
            [BIN / "hora", *args], cwd=cwd, env=self.env, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture
def site(tmp_path: Path):
    s = Site(tmp_path)
    yield s
    s.hora("down", "--now", cwd=tmp_path)
    s.server.wait(PATIENCE)


def test_example(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "examples/70-server", folder)
    out = site.hora("submit", "--file", "job.yaml", "--follow", cwd=folder)
    assert "[0]<stdout>:y = 3.00 x + -1.00" in out.replace("2.99", "3.00").replace("3.01", "3.00").replace(
        "-0.99", "-1.00"
    ).replace("-1.01", "-1.00"), out
    metrics = json.loads(site.hora("metrics", "1", "--json", cwd=tmp_path))
    assert [(m["name"], m["rank"], m["count"]) for m in metrics] == [("loss", 0, 200), ("loss", 1, 200)]
    assert metrics[0]["points"][0]["value"] > 1 > 0.02 > metrics[0]["last"]
    site.hora("artifacts", "1", "--to", "results", cwd=tmp_path)
    assert json.loads((tmp_path / "results/line.json").read_text())["step"] == 200
    job = json.loads(site.hora("job", "1", "--json", cwd=tmp_path))
    assert (
        job["state"] == "finished"
        and job["document"]["priority"] == 60
        and job["document"]["spec"]["name"] == "a line through points"
    )


ELASTIC = """
import os, time
import numpy as np, hora, hora.elastic

hora.init()
state = hora.elastic.State(step=0)

@hora.elastic.run
def train(state):
    print("ranks", hora.size(), "step", state.step, flush=True)
    while not os.path.exists(os.environ["GO"]):
        hora.allreduce(np.ones(4))
        time.sleep(0.02)
        state.step += 1
        state.commit()

train(state)
"""


def test_elastic_gives_slots_away_and_gets_them_back(tmp_path: Path) -> None:
    site = Site(tmp_path, slots=4)
    try:
        (tmp_path / "train.py").write_text(ELASTIC)
        go = tmp_path / "go"
        site.hora(
            "submit",
            "-np",
            "4",
            "--min-np",
            "2",
            "--no-code",
            "--env",
            f"GO={go}",
            sys.executable,
            str(tmp_path / "train.py"),
            cwd=tmp_path,
        )
        follow = subprocess.Popen([BIN / "hora", "logs", "-f", "1"], env=site.env, stdout=subprocess.PIPE, text=True)
        assert follow.stdout

        def until(text: str) -> None:
            assert follow.stdout
            for line in follow.stdout:
                if text in line:
                    return
            pytest.fail(f"the job ended without {text!r}: " + site.hora("job", "1", cwd=tmp_path))

        until("ranks 4 step 0")
        out = site.hora("submit", "-np", "2", "--no-code", "--follow", "sh", "-c", "sleep 2; echo small", cwd=tmp_path)
        assert "small" in out
        until("ranks 2")
        until("ranks 4")
        go.write_text("")
        assert follow.wait(PATIENCE) == 0
        job = json.loads(site.hora("job", "1", "--json", cwd=tmp_path))
        assert len(job["attempts"]) == 1, job
    finally:
        site.hora("down", "--now", cwd=tmp_path)
        site.server.wait(PATIENCE)
