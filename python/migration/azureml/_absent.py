"""Modules and names of the SDK that are not here: each is refused with what to use instead."""

from __future__ import annotations

import difflib
import dis
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

_SEARCH = "the server does not search yet: submit one run for each choice, with tags, and compare run.get_metrics()"
_SERVING = "models are not served by this release"
_DATA = (
    "upload the files with workspace.get_default_datastore().upload(...) and hand over .path(...).as_mount(), "
    "or read tables with hora.dataset"
)
_SECRETS = "keep a value with hora secret set NAME, and hand it to a job with hora submit --secret NAME"

# By the longest beginning of a name.
_INSTEAD = {
    "azureml": "docs/azureml.md lists the names that there are",
    "azureml.automl": _SEARCH,
    "azureml.contrib": "previews have no counterpart; docs/azureml.md lists the names that there are",
    "azureml.core.Keyvault": _SECRETS,
    "azureml.core.keyvault": _SECRETS,
    "azureml.core.Image": "jobs run as processes: list packages in an Environment",
    "azureml.core.image": "jobs run as processes: list packages in an Environment",
    "azureml.core.Webservice": _SERVING,
    "azureml.core.webservice": _SERVING,
    "azureml.core.compute": "take AmlCompute: a name for a pool of the server",
    "azureml.data": _DATA,
    "azureml.dataprep": _DATA,
    "azureml.mlflow": "the server does not speak MLflow's interface: log with run.log or hora.report",
    "azureml.opendatasets": "fetch the data set from whoever publishes it, and upload it with workspace.get_default_datastore().upload(...)",
    "azureml.pipeline": "submit the steps as runs, one after another: run.wait_for_completion() ends when a step has ended, and run.download_files fetches what the next one reads",
    "azureml.tensorboard": "run.download_files fetches what a run has written into logs/: run tensorboard on that",
    "azureml.train.automl": _SEARCH,
    "azureml.train.hyperdrive": _SEARCH,
}


def instead(name: str) -> str:
    """What to use in place of a dotted name that is not here."""
    while name not in _INSTEAD:
        name = name.rpartition(".")[0] or "azureml"
    return _INSTEAD[name]


def _refusal(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"{name} is not in hora-azureml: {instead(name)}", name=name)


def absent(module: str) -> Callable[[str], Any]:
    """A module's __getattr__ that refuses the names that it has not got; modules below it are imported."""

    def refuse(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {module} has no attribute {name}")
        below = f"{module}.{name}"
        if hasattr(sys.modules[module], "__path__") and below not in sys.modules and _there(below):
            return importlib.import_module(below)
        refusal = _refusal(below)
        near = difflib.get_close_matches(name, (n for n in vars(sys.modules[module]) if not n.startswith("_")), 1)
        if near:
            refusal.msg += f"; did you mean {near[0]}?"
        if _imports(sys._getframe(1)):
            raise refusal
        raise AttributeError(refusal.msg)  # for hasattr, and for pickle, which asks each module for each name

    return refuse


def _imports(frame: FrameType) -> bool:
    """Whether a name is asked for by `from … import …`."""
    at = frame.f_lasti
    return at >= 0 and dis.opname[frame.f_code.co_code[at]] == "IMPORT_FROM"


def _there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


class _Absent(MetaPathFinder):
    """Comes after all that find modules, and refuses those of azureml."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith("azureml."):
            raise _refusal(fullname)
        return None


def refuse_the_rest() -> None:
    """Has modules that are not here refused with a sentence."""
    if not any(type(f).__name__ == _Absent.__name__ and type(f).__module__ == __name__ for f in sys.meta_path):
        sys.meta_path.append(_Absent())
