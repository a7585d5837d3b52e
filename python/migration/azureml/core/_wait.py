"""Waiting for a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hora.server import Line

from ..exceptions import ActivityFailedException

if TYPE_CHECKING:
    from .run import Run


def wait(run: Run, show_output: bool, raise_on_error: bool) -> dict[str, Any]:
    """Waits until a run has ended, with what it writes where that is asked for."""
    if show_output:
        print(f"RunId: {run.id}\nWeb View: {run.get_portal_url()}\n")
    last = ""
    try:
        interactive = run.get_status() in ("Completed", "Failed") and not run._job.ended  # its job has nothing to do
        for one in () if interactive else run._client.changes(run.number, lines=show_output):
            if isinstance(one, Line):
                print(one.text if one.rank <= 0 else f"[{one.rank}] {one.text}", flush=True)
                continue
            run._job = one
            stands = run.get_status() + (f": {one.reason}" if one.reason else "")
            if show_output and stands != last:
                print(f"({stands})", flush=True)
            last = stands
    except KeyboardInterrupt:
        print("This wait was interrupted; the run goes on.")
        raise
    details = run.get_details()
    if show_output:
        print(
            f"\nExecution Summary\n=================\nRunId: {run.id}\n{details['status']}: {run._job.text}".rstrip(
                ": \n"
            )
        )
    if details["status"] == "Failed" and raise_on_error:
        error = details["error"]["error"]
        raise ActivityFailedException(
            f"run {run.id} has failed with exit code {error['exitCode']}: {error['message']}: hora logs {run.number} shows what it wrote"
        )
    return details
