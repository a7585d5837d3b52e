"""Ranks with JAX that wait for each other in two groups are told where each is; whether JAX's other threads free them
nobody knows."""

import re

CROSSWISE = """
import threading, time
import jax, jax.numpy as jnp
import hora, hora.jax as hj

hora.init()
r, x = hora.rank(), jnp.ones(2)
a, b = hora.Group([0, 1], tag="a"), hora.Group([0, 1], tag="b")
in_a, in_b = (jax.jit(lambda x, g=g: hj.allreduce(x, group=g)) for g in (a, b))


def ends(call):
    assert (jax.block_until_ready(call(x)) == 2).all()


ends(in_a), ends(in_b)
if r == 0:
    ends(in_a), ends(in_b)
else:
    late = threading.Thread(target=lambda: (time.sleep(2.5), ends(in_a)))
    late.start()
    ends(in_b)
    late.join()
print("well")
"""


def test_two_groups_that_wait_for_each_other_are_told(run):
    done = run(CROSSWISE, HORA_DEADLOCK_TIMEOUT="0.5")
    assert done.stdout.count("well") == 2
    told = [line for line in done.stderr.splitlines() if "wait for each other" in line]
    assert (
        len(told) == 1 and "nothing is ended for 1m0s, since rank 0 runs a framework's compiled program" in told[0]
    ), done.stderr
    assert re.search(r"rank 0 is in allreduce.*group a\).*rank 1 is in allreduce.*group b\)", told[0]), told[0]
