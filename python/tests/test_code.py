"""The word that tells one function's code from another's, by which a run of hora.spark.Estimator knows that its code
has changed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hora.spark import _code, _settled

MODULE = """
import functools

FACTOR = 2
KNOWN = {"a", "b", "c"}


def helper(x):
    return x * FACTOR


def loss(x, y, weight=1.0):
    '''What it does.'''
    return weight * abs(helper(x) - y) if "a" in {"a", "b", "c"} else 0


class Loss:
    power = 2

    def __init__(self, weight):
        self.weight = weight

    def __call__(self, x, y):
        return self.weight * abs(x - y) ** self.power


def made(weight):
    return lambda x, y: weight * (x - y)


GIVEN = {"loss": loss, "class": Loss(1.0), "lambda": made(1.0), "partial": functools.partial(loss, weight=3.0)}
"""


def words(folder, text, seed="0"):
    """Of a module of that text, as another process finds them."""
    folder.mkdir(exist_ok=True)
    (folder / "mine.py").write_text(text)
    program = "import mine; from hora.spark import _code; print({k: _code.digest(v) for k, v in mine.GIVEN.items()})"
    env = os.environ | {
        "PYTHONHASHSEED": seed,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
    }
    return eval(
        subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
    )


def test_the_same_in_each_process(tmp_path):
    first = words(tmp_path / "1", MODULE)
    assert all(w.startswith(f"3.{sys.version_info.minor} ") for w in first.values()) and len(set(first.values())) == 4
    assert words(tmp_path / "2", MODULE, "7") == first
    moved = "# a line more\n\n" + MODULE.replace("What it does", "What it is for")
    assert words(tmp_path / "3", moved, "11") == first


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("abs(helper(x) - y)", "(helper(x) - y) ** 2", {"loss", "partial"}),
        ("return x * FACTOR", "return x + FACTOR", {"loss", "partial"}),
        ("FACTOR = 2", "FACTOR = 3", {"loss", "partial"}),
        ("weight=1.0):", "weight=1.5):", {"loss", "partial"}),
        ("weight=3.0", "weight=4.0", {"partial"}),
        ("power = 2", "power = 1", {"class"}),
        ("Loss(1.0)", "Loss(2.0)", {"class"}),
        ("made(1.0)", "made(2.0)", {"lambda"}),
    ],
)
def test_what_changes_a_word(tmp_path, old, new, changed):
    assert old in MODULE
    before, after = words(tmp_path / "1", MODULE), words(tmp_path / "2", MODULE.replace(old, new))
    assert {k for k in before if before[k] != after[k]} == changed


def test_what_is_installed_goes_by_its_settings():
    torch = pytest.importorskip("torch")
    assert _code.digest(torch.nn.functional.mse_loss, len, os.path.join, "mse", None) is None
    some = [_code.digest(torch.nn.CrossEntropyLoss(label_smoothing=s)) for s in (0.0, 0.0, 0.1)]
    assert some[0] == some[1] != some[2]


def test_a_run_that_goes_on_with_other_code_says_so(recwarn):
    rest = {"loss": "mine.loss", "rows": "3 rows ab", "schema": "struct<>"}
    _settled.check(
        "r",
        rest | {"code": {"loss": "3.11 aa", "model": "3.11 cc"}},
        rest | {"code": {"loss": "3.11 aa", "model": "3.11 cc"}},
    )
    _settled.check(
        "r", rest | {"code": {"loss": "3.11 aa"}}, rest | {"code": {"loss": "3.12 bb"}}
    )  # compiled by another Python
    _settled.check("r", rest, rest | {"code": {"loss": "3.11 aa"}})  # begun before there were such words
    assert not recwarn
    with pytest.warns(
        UserWarning, match="run_id='r' was begun with other code in loss and model, and goes on with what is here now"
    ):
        _settled.check(
            "r",
            rest | {"code": {"loss": "3.11 aa", "model": "3.11 cc"}},
            rest | {"code": {"loss": "3.11 bb", "model": "3.11 dd"}},
        )
