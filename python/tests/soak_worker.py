"""What the Python workers of TestSoakOfPythonWorkersOverHosts do: a training whose every bit depends on all steps
before.

Needs nothing but hora: the hosts there have a home of their own, with no packages in it. All values are whole numbers,
so that every sum is exact; internal/jobtest/elastic_python_test.go has the same course.
"""

import os
import sys
import time
from array import array
from hashlib import sha256

import hora
import hora.elastic
from hora import _world

LENGTH = 1000
EVERY = 3  # steps a commit


def say(text: str) -> None:
    sys.stdout.write(f"{time.time_ns()} {hora.rank()} {text}\n")
    sys.stdout.flush()


def digest(params: array) -> str:
    return sha256(params.tobytes()).hexdigest()[:16]


def gradients(params: array, step: int, rank: int, size: int) -> array:
    """This rank's part of a step: the parts of all ranks make up the whole. One more says that it is enough."""
    first, end = LENGTH * rank // size, LENGTH * (rank + 1) // size
    all_ = array("d", bytes(8 * (LENGTH + 1)))
    all_[first:end] = array("d", [(p * 31 + step * 17 + i) % 1009 for i, p in enumerate(params[first:end], first)])
    return all_


def main() -> None:
    hora.init()
    state = hora.elastic.State(params=array("d", [i % 17 for i in range(LENGTH)]), step=0, note="step 0")
    state.on_reset(lambda: say(f"reset size {hora.size()}"))

    @hora.elastic.run
    def train(state: hora.elastic.State) -> None:
        params = state.params
        if state.note != f"step {state.step}":
            raise RuntimeError(f"state is torn: note {state.note!r} at step {state.step}")
        epoch = _world.info(0)["epoch"]
        say(f"epoch {epoch} begins at step {state.step} with {digest(params)} pid {os.getpid()} size {hora.size()}")
        enough = False
        while not enough:
            whole = gradients(params, state.step, 0, 1)
            both = gradients(params, state.step, hora.rank(), hora.size())
            both[LENGTH] = os.path.exists("open")
            hora.allreduce(both, out=both)
            enough = both[LENGTH] > 0
            if both[:LENGTH] != whole[:LENGTH]:
                say(f"WRONG SUM in epoch {epoch} at step {state.step}")
                raise RuntimeError("wrong sum")
            for i in range(LENGTH):
                params[i] = (params[i] + both[i]) % 65521
            state.step += 1
            state.note = f"step {state.step}"
            if state.step % 50 == 0 and hora.rank() == 0:
                say(f"progress {state.step}")
            if state.step % EVERY == 0:
                state.commit()
            time.sleep(0.002)

    try:
        train(state)
    except hora.elastic.Drained:
        sys.stdout.write(f"0 0 drained at step {state.step}\n")
        raise
    sys.stdout.write(f"0 {hora.rank()} digest {digest(state.params)} steps {state.step}\n")


main()
