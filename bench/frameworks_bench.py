"""What communication costs inside compiled steps of TensorFlow, Keras and JAX: hora beside what the frameworks bring
themselves.

Two ranks, each bound to one core, with one thread each, take turns in interleaved rounds; ratios are medians over the
rounds, with the quartiles beside them. Everything is checked while it is measured (bench/checks.py): chains and
trainings that come out wrong have no figure.

    make deps build           # the frameworks, and the library beside python/hora (make wheel does too)
    python bench/frameworks_bench.py [--rounds 7] [--only tf,jax,fit,steps,kill] [--json FILE]

tf and jax are chains of 20 all-reduces in one compiled step; fit is a step of Keras' fit; steps are 100 steps beside
one process on the joined batch; kill is `kill -9` inside a step.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

PARTS = ("tf", "jax", "fit", "steps", "kill")


def rank_main(part: str, rounds: int) -> None:
    from frameworks.ranks import Teller

    teller = Teller()
    if part in ("tf", "jax"):
        from frameworks import chains

        (chains.tensorflow if part == "tf" else chains.jax)(teller, rounds)
    elif part == "fit":
        from frameworks import fit

        fit.measure(teller, rounds)
    else:
        from frameworks import steps

        steps.measure(teller, rounds)
    teller.leave()


def measured(part: str, rounds: int) -> list[dict]:
    from frameworks import kills, ranks

    if part == "kill":
        lines = kills.measure(min(rounds, 3))
        for line in lines:
            print(ranks.text_of(line), flush=True)
        return lines
    if part == "steps":
        return [line for backend in ("tensorflow", "jax", "torch") for line in ranks.start(part, rounds, {"KERAS_BACKEND": backend})]
    return ranks.start(part, rounds)


def main() -> int:
    if "BENCH_PART" in os.environ:
        rank_main(os.environ["BENCH_PART"], int(os.environ["BENCH_ROUNDS"]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if options.rounds < 1:
        parser.error("--rounds: there is at least one")
    lines, begun = [], time.monotonic()
    for part in PARTS:
        if part in wanted:
            lines += measured(part, options.rounds)
    goals = [line for line in lines if line.get("goal") is not None]
    print(f"{sum(line['reached'] for line in goals)} of {len(goals)} goals reached in {time.monotonic() - begun:.0f} s")
    if options.json:
        with open(options.json, "w") as f:
            json.dump(lines, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
