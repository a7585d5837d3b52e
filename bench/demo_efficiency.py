"""Two ranks of the demo against two processes that know nothing of each other, each with half the batch.

    python bench/demo_efficiency.py bin/hora [rounds]

Both kinds run in turn, bound to cores 0 and 1, under SCHED_RR where allowed. Seconds per step, of the slower process;
the efficiency of a round is the free processes' time over the ranks'. The ranks must end with equal weights, and two
epochs with the loss of one process on the whole batch, to a part in 100,000 (seen: 3e-8). On a machine with other work
compare the fastest rounds.
"""

import json
import statistics
import subprocess
import sys


def steps_and_seconds(text):
    last = [json.loads(line.split(" ", 1)[1]) for line in text.splitlines() if line.startswith("hora-demo ")][-1]
    return last["steps"], last["seconds"]


def records(text):
    return [json.loads(line.split(" ", 1)[1]) for line in text.splitlines() if line.startswith("hora-demo ")]


def check(hora):
    """Whether the ranks train what one process would: ranks that each kept to their own half end elsewhere."""
    worker = [hora, "demo-worker", "--batch", "64", "--epochs", "2"]
    one, two = (
        records(subprocess.run([*start, *worker], stdout=subprocess.PIPE, text=True, check=True).stdout)
        for start in ([], [hora, "run", "-np", "2", "--no-tag"])
    )
    want = [r["loss"] for r in one if r["kind"] == "epoch"][-1]
    got = [r["loss"] for r in two if r["kind"] == "epoch" and r["epoch"] == 2]
    assert len(got) == 2 and all(abs(g - want) <= 1e-5 * want for g in got), f"the loss of two ranks is {got}, of one process {want}"


def free(hora, prefix, epochs):
    procs = [
        subprocess.Popen([*prefix, "taskset", "-c", str(core), hora, "demo-worker", "--batch", "32", "--epochs", str(epochs)],
                         stdout=subprocess.PIPE, text=True)
        for core in (0, 1)
    ]
    return max(seconds / steps for steps, seconds in (steps_and_seconds(p.communicate()[0]) for p in procs))


def together(hora, prefix, epochs):
    out = subprocess.run([*prefix, hora, "run", "-np", "2", "--no-tag", hora, "demo-worker", "--batch", "64", "--epochs", str(epochs)],
                         stdout=subprocess.PIPE, text=True, check=True).stdout
    done = [json.loads(line.split(" ", 1)[1]) for line in out.splitlines() if '"kind":"done"' in line]
    assert len(done) == 2 and all(r["agree"] for r in done) and done[0]["digest"] == done[1]["digest"], "the ranks' weights differ"
    share = [r["talk"] / (r["busy"] + r["talk"] + r["wait"]) for r in done]
    return max(r["seconds"] / r["steps"] for r in done), max(share)


def main():
    hora, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 9
    prefix = ["chrt", "-r", "5"] if subprocess.run(["chrt", "-r", "5", "true"]).returncode == 0 else []
    check(hora)
    ratios, shares, fastest = [], [], [float("inf"), float("inf")]
    for _ in range(rounds):
        alone = free(hora, prefix, 40)
        ranks, share = together(hora, prefix, 40)
        ratios.append(alone / ranks)
        shares.append(share)
        fastest = [min(fastest[0], alone), min(fastest[1], ranks)]
        print(f"free {alone * 1e6:7.1f} us a step   two ranks {ranks * 1e6:7.1f}   efficiency {alone / ranks:.3f}   communication {share:.3f}")
    print(f"fastest rounds: free {fastest[0] * 1e6:.1f} us, two ranks {fastest[1] * 1e6:.1f}, efficiency {fastest[0] / fastest[1]:.3f}")
    print(f"median efficiency {statistics.median(ratios):.3f}, median communication share {statistics.median(shares):.3f}, "
          f"{'SCHED_RR' if prefix else 'ordinary scheduling'}")


if __name__ == "__main__":
    main()
