"""A run's progress in a notebook: here as a line of text with the address of its page."""

from __future__ import annotations

from typing import Any


class RunDetails:
    """Shows where a run stands."""

    def __init__(self, run_instance: Any) -> None:
        self._run = run_instance

    def show(self, render_lib: object = None, widget_settings: object = None) -> None:
        """Prints where the run stands, and where its page is."""
        details = self._run.get_details()
        why = "".join(f": {w['message']}" for w in details.get("warnings", []))
        print(f"{self._run.id}: {details['status']}{why}\n{self._run.get_portal_url()}")

    def get_widget_data(self, widget_settings: object = None) -> dict[str, Any]:
        """What the widget would show."""
        return {"status": self._run.get_status(), "run_metrics": self._run.get_metrics()}
