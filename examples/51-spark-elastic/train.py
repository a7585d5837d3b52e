"""Elastic training on ordinary Spark tasks: an executor is killed, the other goes on, and a new one joins.

    python examples/51-spark-elastic/train.py            # a cluster of two executors on this machine

The function counts steps; whatever happens to the executors, every step is counted once.
"""

import os
import signal
import tempfile
import threading
import time

from pyspark.sql import SparkSession


def train(steps, folder):
    import os
    import time

    import hora
    import hora.elastic

    hora.init()
    state = hora.elastic.State(step=0, total=0.0, sizes=[])

    @hora.elastic.run
    def work(state):
        while state.step < steps or len(state.sizes) < 3:  # until one was lost and another has come
            state.total += float(hora.allreduce(float(state.step), hora.AVERAGE))
            if not state.sizes or state.sizes[-1] != hora.size():
                state.sizes = [*state.sizes, hora.size()]
            state.step += 1
            if hora.rank() == hora.size() - 1 and state.step == 20:
                with open(f"{folder}/victim", "w") as f:
                    f.write(str(os.getpid()))
            state.commit()
            time.sleep(0.02)
        return {"step": state.step, "total": state.total, "sizes": state.sizes}

    return work(state)


def kill_its_executor(folder):
    """What a machine's loss is like: the process that Spark calls an executor ends at once, with all that it runs."""
    path = os.path.join(folder, "victim")
    while not (os.path.exists(path) and os.path.getsize(path)):
        time.sleep(0.05)
    with open(path) as f:
        pid = int(f.read())
    while pid > 1:
        with open(f"/proc/{pid}/cmdline") as f:
            if "CoarseGrainedExecutorBackend" in f.read():
                print("killing executor", pid)
                os.kill(pid, signal.SIGKILL)
                return
        with open(f"/proc/{pid}/stat") as f:
            pid = int(f.read().rsplit(")", 1)[1].split()[1])


def main():
    import hora.spark

    SparkSession.builder.master("local-cluster[2,1,1024]").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=kill_its_executor, args=(folder,), daemon=True).start()
        results = hora.spark.run(train, args=(200, folder), np=2, min_np=1, max_np=2)
    print("results:", results)
    for r in results:
        assert r["total"] == r["step"] * (r["step"] - 1) / 2 and r["sizes"][:3] == [2, 1, 2]
    print("every step was counted once")


if __name__ == "__main__":
    main()
    SparkSession.getActiveSession().stop()
