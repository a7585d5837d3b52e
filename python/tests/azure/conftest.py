"""Where the tests of Azure Machine Learning's names find them, and a server whose jobs find them too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MIGRATION = str(ROOT / "python/migration")
sys.path.append(MIGRATION)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory):
    from test_server import PATIENCE, Site

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [MIGRATION, before]))
    tmp = tmp_path_factory.mktemp("azure")
    s = Site(tmp)
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before
    yield s
    s.hora("down", "--now", cwd=tmp)
    s.server.wait(PATIENCE)


@pytest.fixture
def here(site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script's workspace, which this process is in."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "HORA_SERVER", "HORA_TOKEN", "HORA_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", site.env["HOME"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".azureml").mkdir()
    (tmp_path / ".azureml/config.json").write_text(
        '{"subscription_id": "s", "resource_group": "g", "workspace_name": "books"}'
    )
    return tmp_path
