"""A job of a server: it reports how it goes, and what it writes into outputs/ comes back.

    hora up                                                     # in another terminal
    cd examples/70-server && hora submit --file job.yaml --follow
    hora metrics 1
    hora artifacts 1 --to results

Two ranks fit a line through points, each through its own half. When the job is preempted, paused or lost with its
machine it starts again with what outputs/ had, and goes on from there.
"""

import json
import os

import numpy as np

import hora

STEPS = 200
SAVED = "outputs/line.json"

hora.init()
rng = np.random.default_rng(hora.rank())
x = rng.uniform(-1, 1, 500)
y = 3 * x - 1 + rng.normal(0, 0.1, 500)

line, start = np.zeros(2), 0
if os.path.exists(SAVED):
    with open(SAVED) as f:
        saved = json.load(f)
    line, start = np.array(saved["line"]), saved["step"]

for step in range(start, STEPS):
    error = line[0] * x + line[1] - y
    gradient = np.array([(error * x).mean(), error.mean()])
    line -= 0.5 * hora.allreduce(gradient, hora.AVERAGE)
    hora.report(step, loss=(error**2).mean())
    if step % 50 == 49 and hora.rank() == 0:
        with open(SAVED + ".new", "w") as f:
            json.dump({"line": line.tolist(), "step": step + 1}, f)
        os.replace(SAVED + ".new", SAVED)

if hora.rank() == 0:
    print(f"y = {line[0]:.2f} x + {line[1]:.2f}")
hora.shutdown()
