"""Horovod's own tests of TensorFlow and Keras, as they are: all pass but those in horovods_own/left_out.txt.

They are not here: HOROVOD_TESTS names the folder `test` of a copy of Horovod's sources (0.28). What they import besides
(parameterized) is found by PYTHONPATH.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import horovods_own
import own_tests
import pytest
from sample import soak


@soak
@pytest.mark.skipif(
    not horovods_own.FOLDER,
    reason="HOROVOD_TESTS names no folder with Horovod's own tests, which are not part of this tree",
)
@pytest.mark.parametrize("name", horovods_own.files() or list(horovods_own.FILES))
def test_horovods_own_tests_pass(tmp_path, hora_program, name):
    ends = horovods_own.run(name, tmp_path, hora_program)
    found = own_tests.differences(ends, horovods_own.left_out(name))
    counts = {o: sum(end[0] == o for end in ends.values()) for o in ("passed", "skipped", "failed")}
    print(name, counts)
    assert not found, f"{counts}\n" + "\n".join(found)


def test_the_list_has_reasons_and_files_that_are_run():
    told = own_tests.left_out(horovods_own.HERE / "left_out.txt")
    assert {name.partition("::")[0] for name in told} <= set(horovods_own.FILES)


def test_what_takes_too_long_ends_with_all_that_it_started(tmp_path):
    """Also what has a group of its own, as ranks have."""
    started = tmp_path / "started"
    with pytest.raises(subprocess.TimeoutExpired):
        own_tests.run(["bash", "-c", f"set -m; sleep 300 & echo $! >{started}; wait"], 2)
    state = Path(f"/proc/{int(started.read_text())}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"  # nobody has asked for its end


def test_what_ranks_noted_is_a_failure_on_any(tmp_path):
    lines = (
        '["a", "failed", "it has not ended"]\n["a", "passed", ""]\n["b", "failed", "it has not ended"]\n["b", "skipped", ""]\n',
        '["a", "failed", "it has not ended"]\n["a", "failed", "no"]\n["b", "failed", "it has not ended"]\n'
        '["b", "passed", ""]\n["b", "failed", "after"]\n["c", "failed", "it has not ended"]\n',
    )
    for rank, text in enumerate(lines):
        (tmp_path / f"ends-{rank}").write_text(text)
    ends = own_tests.noted(tmp_path / "ends-0", tmp_path / "ends-1")
    assert ends == {"a": ("failed", "no"), "b": ("failed", "after"), "c": ("failed", "it has not ended")}
    assert own_tests.noted(tmp_path / "ends-0") == {"a": ("passed", ""), "b": ("skipped", "")}
    assert own_tests.differences(ends, {"a": "no", "b": "after", "d": "gone"}) == [
        "c fails and left_out.txt has no reason for it: it has not ended",
        "d: left_out.txt has it, and it is no test",
    ]
