"""Horovod's worker program for horovod.run; hora.run has a worker of its own."""

import sys

if __name__ == "__main__":
    sys.exit(
        "python -m horovod.runner.run_task: not used by hora; call horovod.run(func, num_proc=2) or `hora run -np 2 python train.py`"
    )
