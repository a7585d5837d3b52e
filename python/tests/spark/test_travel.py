"""What goes to other processes from several threads at once, as the fits of a CrossValidator."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import ends  # a module that lies beside the program, and so travels by value
from sample import longer

from hora.spark import _travel


@longer
def test_threads_send_at_once():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            blobs = list(pool.map(lambda _: _travel.pickled_with_code(ends.told, "a function"), range(200)))
    finally:
        sys.setswitchinterval(usual)
    assert (
        all(cloudpickle.loads(b).__name__ == "told" for b in blobs) and not cloudpickle.list_registry_pickle_by_value()
    )
