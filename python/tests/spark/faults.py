"""One job and one fault at a random moment of it: it ends in time, with the right result or an error, and nothing of it
is left.

python faults.py FOLDER COUNT SEED HOLDER PID…          # the driver on the first of the hosts of hosts.py
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ends import executor_of, serving, told

import hora
import hora.spark
from hora.spark import _cluster

LIMIT = 150  # seconds for any of them
STEPS = 150


def elastic(path, steps):
    import os
    import time

    import hora
    import hora.elastic

    hora.init()
    state = hora.elastic.State(step=0, total=0, sizes=[])
    me = f"{path}/{os.getpid()}"
    with open(me + "~", "w") as f:
        f.write(str(os.getpid()))
    os.rename(me + "~", me)

    @hora.elastic.run
    def work(state):
        while state.step < steps:
            state.total += int(hora.allreduce(float(state.step), hora.AVERAGE, name="x"))
            if not state.sizes or state.sizes[-1][0] != hora.size():
                state.sizes = [*state.sizes, (hora.size(), time.time())]
            state.step += 1
            state.commit()
            time.sleep(0.02)
        return state.step, state.total, state.sizes

    return work(state)


def gang(path, steps):
    import os
    import time

    import hora

    hora.init()
    me = f"{path}/{os.getpid()}"
    with open(me + "~", "w") as f:
        f.write(str(os.getpid()))
    os.rename(me + "~", me)
    total = 0
    for step in range(steps):
        total += int(hora.allreduce(float(step), hora.AVERAGE, name="x"))
        time.sleep(0.02)
    return steps, total, []


def marked(mark: str) -> list[int]:
    """The processes that have it in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


def network(pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")


def one(
    spark,
    chance: random.Random,
    kind: str,
    folder: Path,
    cut: Callable[[int], None] | None = None,
    comes_and_goes: bool = True,
) -> dict:
    """A job of two ranks with a fault of this kind in it; what came of it. AssertionError where that is wrong."""
    folder.mkdir()
    mark = f"fault-{secrets.token_hex(6)}"
    done: dict = {"kind": kind, "elastic": comes_and_goes}

    def fault():
        pids = told(folder, 2 if kind == "cut" else chance.choice((1, 2)))
        threading.Event().wait(chance.uniform(0, 0.8))
        pid = chance.choice(pids)
        done["at"] = time.time()
        try:
            if kind == "worker":
                os.kill(pid, signal.SIGKILL)
            elif kind == "executor":
                os.kill(executor_of(pid), signal.SIGKILL)
            elif kind == "cancel":
                spark.sparkContext.cancelAllJobs()
            else:
                cut(pid)
        except (OSError, AssertionError) as e:  # it ended just then
            done["missed"] = str(e)

    _cluster.wait_for_slots(spark, 2, 120, lambda text: None)
    thread = threading.Thread(target=fault, daemon=True)
    thread.start()
    began = time.monotonic()
    try:
        more = {"min_np": 1, "max_np": 2, "restarts": 3} if comes_and_goes else {"restarts": 4}
        got = hora.spark.run(
            elastic if comes_and_goes else gang, args=(str(folder), STEPS), np=2, env={"FAULT_MARK": mark}, **more
        )
        assert all(g[:2] == (STEPS, STEPS * (STEPS - 1) // 2) for g in got) and got, (done, got)
        done["result"] = "right"
        done["sizes"] = got[0][2]
    except hora.HoraError as e:
        done["result"] = str(e)
        assert kind == "cancel" or (kind == "cut" and not comes_and_goes), (
            done
        )  # a gang may find no two slots while a host is cut off
    done["took"] = time.monotonic() - began
    assert done["took"] < LIMIT, done
    thread.join(30)
    end = time.monotonic() + (30 if kind == "cut" else 3)
    while left := [*marked(mark), *serving()]:
        assert time.monotonic() < end, (done, left)
        threading.Event().wait(0.05)
    return done


def main() -> None:
    import hosts
    import same
    import sessions

    folder, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    holder, *pids = map(int, sys.argv[4:])
    spark = sessions.start("spark://10.78.0.1:7077", folder, **hosts.SESSION)
    _cluster.wait_for_slots(spark, len(pids) - 1, 120, print)
    same.check(2, "all")
    same.check(2, "log_callback_only")
    print("the same", flush=True)
    numbers = {network(p): n for n, p in enumerate(pids, 1)}

    def cut(pid: int) -> None:
        number = numbers[network(pid)]
        hosts.cable(holder, number, False)
        threading.Timer(9, hosts.cable, (holder, number, True)).start()

    chance = random.Random(seed)
    for i in range(count):
        kind = "cut" if i == 0 else chance.choice(("worker", "executor", "cut", "cancel"))
        done = one(spark, chance, kind, folder / f"fault{i}", cut, i == 0 or chance.random() < 0.6)
        if i == 0:
            alone = next(at for size, at in done["sizes"] if size == 1)
            done["goes_on_after"] = alone - done["at"]
        print(json.dumps(done | {"fault": i}), flush=True)
    spark.stop()
    print("all ended", flush=True)


if __name__ == "__main__":
    main()
