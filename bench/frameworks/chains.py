"""A chain of 20 all-reduces inside one compiled step, per operation: hora beside what the framework brings.

Each operation's input is the one before's result, so none can run beside another or be left out. The first input is
other whole numbers at each rank, element and turn; the result is their sum times 2**19, to the last bit.
"""

from __future__ import annotations

import json
import os
import statistics

import numpy as np
from checks import Data, Wrong
from frameworks.ranks import LINKS, SIZES, TIMES, Teller, agree, compare, turns


def measure(teller: Teller, framework: str, variants: dict, rounds: int, goals: dict) -> None:
    """`variants` is name → (call, give, take); the first is ours. `goals` is name → by size."""
    import hora

    names = list(variants)
    for label, nbytes in SIZES.items():
        took: dict[str, list[float]] = {v: [] for v in names}
        data = Data([np.empty(nbytes // 4, np.float32)], hora.rank(), hora.size())
        for round_ in range(rounds):
            for v, (call, give, take) in variants.items():
                first = round_ * (TIMES[nbytes] + 5)
                mine, right = turns(call, give, take, data, 2.0 ** (LINKS - 1), TIMES[nbytes], first)
                agree([] if right else [f"{v} gave a wrong result"], f"{framework} {label}")
                took[v].append(max(hora.allgather_object(statistics.median(mine))) / LINKS)
        for v in names:
            low, high = min(took[v]) * 1e6, max(took[v]) * 1e6
            teller.say(what=f"{framework} {label:7} {v}", value=f"{statistics.median(took[v]) * 1e6:.1f} us ({low:.1f}-{high:.1f})")
        for v in names[1:]:
            compare(teller, f"{framework} {label:7} hora", took[names[0]], took[v], v, goals[v][label])


def tensorflow(teller: Teller, rounds: int) -> None:
    os.environ["TF_CONFIG"] = os.environ["BENCH_CLUSTER"]
    import tensorflow as tf

    options = tf.distribute.experimental
    ring = options.CommunicationOptions(implementation=options.CommunicationImplementation.RING)
    # Before anything else of TensorFlow.
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)
    import hora
    import hora.tensorflow as ht

    hora.init()
    total = tf.distribute.ReduceOp.SUM

    @tf.function
    def ours(x):
        for _ in range(LINKS):
            x = ht.allreduce(x)
        return x

    @tf.function
    def through_numpy(x):
        for _ in range(LINKS):
            x = tf.numpy_function(hora.allreduce, [x], tf.float32)
        return x

    @tf.function
    def theirs(x):
        def replica(y):
            y = tf.identity(y)  # the strategy wants a tensor that has a device
            for _ in range(LINKS):
                y = tf.distribute.get_replica_context().all_reduce(total, y, options=ring)
            return y

        return strategy.run(replica, args=(x,))

    give, take = tf.constant, lambda y: y.numpy()
    variants = {
        "hora": (ours, give, take),
        "numpy_function": (through_numpy, give, take),
        "MultiWorkerMirroredStrategy": (theirs, give, take),
    }
    goals = {
        "numpy_function": {"4 B": 2.5, "64 KiB": 1.0, "1 MiB": 1.0},
        "MultiWorkerMirroredStrategy": dict.fromkeys(SIZES, 5.0),
    }
    nodes = [n.type for n in theirs.get_concrete_function(tf.zeros([1])).graph.get_operations()]
    if sum("CollectiveReduce" in n for n in nodes) != LINKS:
        raise Wrong(f"MultiWorkerMirroredStrategy's graph has not {LINKS} collectives but {sorted(set(nodes))}")
    measure(teller, "tf", variants, rounds, goals)


def jax(teller: Teller, rounds: int) -> None:
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    rank = json.loads(os.environ["BENCH_CLUSTER"])["task"]["index"]
    jax.distributed.initialize(os.environ["BENCH_JAX"], num_processes=2, process_id=rank)
    import hora
    import hora.jax as hj

    hora.init()
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("r",))
    parts = jax.sharding.PartitionSpec("r")

    @jax.jit
    def ours(x):
        for _ in range(LINKS):
            x = hj.allreduce(x)
        return x

    def chain(x):
        for _ in range(LINKS):
            x = jax.lax.psum(x, "r")
        return x

    theirs = jax.jit(jax.shard_map(chain, mesh=mesh, in_specs=parts, out_specs=parts, check_vma=False))
    here = jax.sharding.NamedSharding(mesh, parts)
    mine = jax.local_devices()[0]

    def spread(x):
        return jax.make_array_from_process_local_data(here, x)

    made = theirs.lower(spread(np.zeros(1, np.float32))).compile().as_text()
    if made.count(" all-reduce(") != LINKS:
        raise Wrong(f"XLA has made {made.count(' all-reduce(')} all-reduces of the {LINKS} of jax.distributed's chain")
    variants = {
        "hora": (ours, lambda x: jax.device_put(x, mine), np.asarray),
        "jax.distributed with gloo": (theirs, spread, lambda y: np.asarray(y.addressable_data(0))),
    }
    measure(teller, "jax", variants, rounds, {"jax.distributed with gloo": {"4 B": 1.5, "64 KiB": 10.0, "1 MiB": 5.0}})
    hora.barrier()
    jax.distributed.shutdown()
