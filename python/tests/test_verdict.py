"""What a trial has found, for other processes of a host: who tries, who waits, and what is not believed."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hora import _verdict


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(_verdict.tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path / f"hora-{os.geteuid()}"


class Trials:
    """Trials that answer one after another."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)

    def __call__(self) -> str:
        return self.answers.pop(0)


def asked(*answers: str, about: str = "this", patience: float = 60) -> list[str]:
    """Asks as often as there are answers of a trial, and once more."""
    trial = Trials(*answers)
    got = [_verdict.shared(about, trial, patience) for _ in (*answers, "")]
    assert not trial.answers
    return got


def test_what_works_is_kept_and_what_does_not_is_tried_again(folder: Path) -> None:
    assert asked("it hangs", "it ends", "") == ["it hangs", "it ends", "", ""]
    assert asked("", about="that") == ["", ""]
    file = folder / hashlib.sha256(b"this").hexdigest()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_was_not_written_to_its_end_is_not_believed(folder: Path) -> None:
    assert asked("") == ["", ""]
    file = folder / hashlib.sha256(b"this").hexdigest()
    for text in (b"", b"w", b"well", b"well\nwell\n", b"ill: it ha", bytes(5)):
        file.write_bytes(text)
        assert asked("") == ["", ""], text


@pytest.mark.parametrize("why", ["", "it hangs,\nand more"])
def test_who_waits_for_a_trial_hears_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    waiting, waits = threading.Semaphore(0), threading.local()

    def look(seconds: float) -> None:
        if not hasattr(waits, "told"):
            waits.told = True
            waiting.release()
        threading.Event().wait(seconds)

    monkeypatch.setattr(_verdict.time, "sleep", look)
    made = []

    def trial() -> str:
        made.append(why)
        for _ in range(7):
            assert waiting.acquire(timeout=60)
        return why

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda _: _verdict.shared("this", trial, 60), range(8)))
    assert len(made) == 1 and sorted(set(got)) == sorted({why, why.replace("\n", " ")}), (made, got)


def test_who_waits_too_long_tries_itself(folder: Path) -> None:
    def trial() -> str:
        assert _verdict.shared("this", lambda: "of its own", 0.0) == "of its own"
        return ""

    assert _verdict.shared("this", trial, 60) == ""
    assert asked() == [""], "what the first found is kept"


def test_who_ends_in_the_middle_has_found_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked("it hangs", "") == ["it hangs", "", ""]
    file = folder / hashlib.sha256(b"this").hexdigest()
    file.write_bytes(b"ill: it hangs\n")  # of a trial before

    def ends() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _verdict.shared("this", ends, 60)
    assert file.read_bytes() == b""


def test_a_folder_that_is_not_this_users_alone_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unused() -> None:
        trial = Trials("", "")
        assert [_verdict.shared("this", trial, 60) for _ in range(2)] == ["", ""] and not trial.answers

    folder.mkdir()
    for mode in (0o777, 0o750, 0o701):
        folder.chmod(mode)
        unused()
    assert not list(folder.iterdir())
    folder.rename(elsewhere := folder.with_name("elsewhere"))
    elsewhere.chmod(0o700)
    folder.symlink_to(elsewhere)
    unused()
    folder.unlink()
    folder.write_text("a file")
    unused()
    assert not list(elsewhere.iterdir())
    folder.unlink()
    elsewhere.rename(folder)
    monkeypatch.setattr(_verdict.os, "geteuid", lambda: os.getuid() + 1)
    folder.rename(folder.with_name(f"hora-{os.getuid() + 1}"))  # of that name, but this one's
    unused()


def test_without_a_folder_each_tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trials("", "it hangs", "")
    monkeypatch.setattr(_verdict.tempfile, "gettempdir", lambda: str(tmp_path / "none"))
    assert _verdict.shared("this", trial, 60) == ""

    def none() -> str:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(_verdict.tempfile, "gettempdir", none)
    assert _verdict.shared("this", trial, 60) == "it hangs"
    monkeypatch.undo()
    monkeypatch.setattr(_verdict.tempfile, "gettempdir", lambda: str(tmp_path))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_verdict.os, "pwrite", full)
    assert _verdict.shared("this", trial, 60) == "" and not trial.answers
