"""One program of HorovodRunner's: what it gives and says must not depend on where it runs.

python same.py MASTER FOLDER          # local[2], local-cluster[2,1,1024], spark://…, or connect
"""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path


def talk(scale):
    import os

    import numpy as np
    from sparkdl.horovod import log_to_driver

    import hora

    hora.init()
    rank = os.environ["HOROVOD_RANK"]
    print("printed by", rank)
    log_to_driver("told\ntwice")
    summed = hora.allreduce(np.arange(3.0) * (hora.rank() + 1), name="x")
    return {"rank": rank, "size": hora.size(), "sum": (scale * summed).tolist()}


WANTED = {"rank": "0", "size": 2, "sum": [0.0, 30.0, 60.0]}


def lines(verbosity: str, np: int) -> list[str]:
    """What is shown of it, in any order."""
    told = [f"[{r}]<stdout>:{text}" for r in "01" for text in ("told", "twice")]
    printed = [f"[{r}]<stdout>:printed by {r}" for r in "01"]
    return sorted(told if np > 0 and verbosity != "all" else told + printed)


def check(np: int, verbosity: str = "all") -> None:
    """Run it, with the active session if np > 0."""
    from sparkdl import HorovodRunner

    said = io.StringIO()
    with redirect_stdout(said):
        got = HorovodRunner(np=np, driver_log_verbosity=verbosity).run(talk, scale=10)
    assert got == WANTED, got
    assert sorted(said.getvalue().splitlines()) == lines(verbosity, np), said.getvalue()


def main() -> None:
    import sessions

    master, folder = sys.argv[1], Path(sys.argv[2])
    if master == "connect":
        spark = sessions.connect("local-cluster[2,1,1024]", folder)
    else:
        spark = sessions.start(master, folder, **json.loads(os.environ.get("SESSION", "{}")))
    for verbosity in ("all", "log_callback_only"):
        check(2, verbosity)
    spark.stop()
    print("the same")


if __name__ == "__main__":
    main()
