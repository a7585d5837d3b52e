"""The extension module `_fast`, where it can be loaded, and only in the interpreter that the process began with.

Threads of the library and of ctypes know that one alone: in a subinterpreter the process would wait for itself at its
end.
"""

from __future__ import annotations

_REFUSAL = (
    "import hora: this is a subinterpreter, and hora works in a process's main interpreter only; use processes instead "
    "(multiprocessing, hora run), or mod_wsgi's WSGIApplicationGroup %{GLOBAL}"
)

try:
    from . import _fast as fast
except ImportError as e:
    if "subinterpreter" in str(e):  # Python 3.12 says so itself
        raise ImportError(_REFUSAL) from None
    fast = None  # type: ignore[assignment]
if fast is not None and not fast.main():
    raise ImportError(_REFUSAL)
