"""A plugin of pytest that notes what became of each test, in a line of PUBLISHED_ENDS as soon as that is known.

Of a rank of a job the file has the rank's number at its end.
"""

from __future__ import annotations

import json
import os

_FILE = os.environ["PUBLISHED_ENDS"] + os.environ.get("HORA_RANK", "")
_noted: dict[str, str] = {}


def _note(name, outcome, said=""):
    _noted[name] = outcome
    with open(_FILE, "a") as f:
        f.write(json.dumps([name, outcome, said]) + "\n")


def _said(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash is not None else str(report.longrepr))[-500:]


def pytest_runtest_logstart(nodeid):
    _note(nodeid, "failed", "it has not ended")


def pytest_runtest_logreport(report):
    if report.failed:
        _note(report.nodeid, report.outcome, _said(report))
    elif report.when == "call" or report.skipped:
        _note(report.nodeid, report.outcome)


def pytest_collectreport(report):
    if report.failed:
        _note(report.nodeid, report.outcome, _said(report))
