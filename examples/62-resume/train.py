"""A table's rows, each once, although the training is killed twice and goes on with other numbers of ranks.

    hora run -np 2 python examples/62-resume/train.py DATA DIR 9        # killed at step 9
    hora run -np 3 python examples/62-resume/train.py DATA DIR 25       # goes on, killed at step 25
    hora run -np 1 python examples/62-resume/train.py DATA DIR          # goes on and ends

DATA is a Parquet file or a folder of them with the columns id, a, b and y. Every fifth step rank 0 saves what must not
be lost: the weights, and where the job stands in its data, which is a few numbers. The order of the rows depends
neither on the number of ranks nor on the batch, so any number of ranks goes on at the very row. To show it, the ids of
the rows are saved too, and compared at the end.
"""

import json
import os
import signal
import sys

import numpy as np

import hora
import hora.dataset

data, folder, die = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else -1
checkpoint = os.path.join(folder, "checkpoint.json")

hora.init()
loader = hora.dataset.open(data, columns={"id": "id", "x": ["a", "b"], "y": "y"}, batch=32, seed=7)
weights, step, taken = np.zeros(2, np.float32), 0, []
if os.path.exists(checkpoint):
    with open(checkpoint) as f:
        saved = json.load(f)
    loader.load_state_dict(saved["data"])
    weights, step, taken = np.array(saved["weights"], np.float32), saved["step"], saved["taken"]
if hora.rank() == 0:
    print(f"{hora.size()} ranks begin at row {loader.position} of {loader.rows}: {loader.mixing}", flush=True)


def commit(mine):
    """Rank 0 saves what all have done; a file is there as a whole or not at all."""
    global taken
    taken += [i for ids in hora.allgather_object(mine) for i in ids]
    if hora.rank() == 0:
        with open(checkpoint + ".new", "w") as f:
            json.dump({"data": loader.state_dict(), "weights": weights.tolist(), "step": step, "taken": taken}, f)
        os.replace(checkpoint + ".new", checkpoint)


mine = []
for batch in loader:
    gradient = 2 * batch["x"].T @ (batch["x"] @ weights - batch["y"]) / len(batch["y"])
    weights -= 0.1 * hora.allreduce(gradient, op=hora.AVERAGE)
    mine += batch["id"].tolist()
    step += 1
    if step == die and hora.rank() == hora.size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if step % 5 == 0:
        commit(mine)
        mine = []
commit(mine)
if hora.rank() == 0:
    assert sorted(taken) == list(range(loader.rows)), "a row was lost, or taken twice"
    print(f"done: {len(taken)} rows, each once, in {step} steps; weights {weights[0]:.3f} {weights[1]:.3f}")
