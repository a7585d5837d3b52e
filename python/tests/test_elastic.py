"""hora.elastic: workers are killed, replaced, asked to leave; nothing committed is lost."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import hora
import hora.elastic
from hora import frontend
from hora.elastic import ElasticSampler, State

HERE = Path(__file__).resolve().parent


# -- what workers do


def work(steps: int, pause: float = 0.0) -> None:
    """Sums that depend on rank and step, so that a step done twice, or not at all, shows."""
    hora.init()
    same = os.environ.get("SAME")  # gradients that do not depend on the size of the world
    state = State(w=np.zeros(100), step=0, notes={"last": -1}, sampler=ElasticSampler(100000, seed=5))

    @state.on_reset
    def reset():
        say(f"reset {hora.rank()} {hora.size()} {state.commits}")

    @hora.elastic.run
    def train(state):
        say(f"pid {hora.rank()} {os.getpid()} {hora.size()}")
        indices = iter(state.sampler)
        while state.step < steps:
            index = 1 if same else next(indices)
            g = np.full(100, float(state.step * index % 1000))
            hora.allreduce(g, hora.AVERAGE if same else hora.SUM, out=g)
            state.w += g
            state.step += 1
            state.notes["last"] = state.step
            state.sampler.record(1)
            state.commit()
            time.sleep(pause)
        return state.w.sum()

    total = train(state)
    say(f"final {total} {state.step} {state.notes['last']} {state.commits if same is None else ''}")


def fails(at: int) -> None:
    hora.init()

    @hora.elastic.run
    def train(state):
        for _ in range(10):
            state.step += 1
            state.commit()
            if state.step == at:
                raise KeyError("the data ends here")

    train(State(step=0))


def twice() -> None:
    """Two trainings, one after the other, in one job."""
    hora.init()
    state = State(step=0)

    @hora.elastic.run
    def train(state, until):
        while state.step < until:
            state.step += 1
            state.commit()

    train(state, 3)
    train(state, 6)
    say(f"final {state.step}")


def late(done: str) -> None:
    """A replacement that comes when the others have done the work, while rank 0 still has something to say."""
    if os.environ["HORA_EPOCH"] != "1":
        _until(lambda: os.path.exists(done))
    hora.init()
    state = State(step=0)

    @hora.elastic.run
    def train(state):
        while state.step < 5:
            if state.step == 2 and hora.size() == 2 and hora.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            hora.barrier()
            state.step += 1
            state.commit()

    train(state)
    Path(done).touch()
    _until(lambda: os.path.exists(done + ".heard"))
    say(f"final {state.step}")


def deserted() -> None:
    """Who replaces a lost rank never joins; the others say when they wait for it."""
    if os.environ["HORA_EPOCH"] != "1":
        time.sleep(60)
    hora.init()
    join = hora.elastic._world.next_epoch

    def next_epoch() -> None:
        say("waits")
        join()

    hora.elastic._world.next_epoch = next_epoch

    @hora.elastic.run
    def train(state):
        say(f"pid {hora.rank()} {os.getpid()} {hora.size()}")
        while True:
            hora.barrier()
            state.commit()

    train(State())


def _until(true) -> None:
    end = time.monotonic() + 60
    while not true() and time.monotonic() < end:
        time.sleep(0.02)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# -- the driver


class Run:
    """A `hora run` whose output is read as it comes."""

    def __init__(self, program: Path, options: list[str], call: str, env: dict[str, str] | None = None) -> None:
        code = f"import sys; sys.path.insert(0, {str(HERE)!r}); import test_elastic as m; m.{call}"
        self.process = subprocess.Popen(
            [program, "run", *options, sys.executable, "-c", code],
            env=os.environ | {"OMP_NUM_THREADS": "1"} | (env or {}),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self.news = threading.Condition()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            with self.news:
                self.lines.append(line.rstrip().partition(">:")[2] or line.rstrip())
                self.news.notify_all()
        with self.news:
            self.lines.append("end")
            self.news.notify_all()

    def until(self, what, timeout: float = 30.0) -> None:
        with self.news:
            assert self.news.wait_for(lambda: what(self.lines) or self.lines[-1:] == ["end"], timeout), "\n".join(
                self.lines
            )

    def at_work(self) -> dict[int, int]:
        """The process of each rank that has begun to train last."""
        with self.news:
            return {int(w[1]): int(w[2]) for w in (line.split() for line in self.lines) if w[0] == "pid"}

    def ends(self, timeout: float = 60.0) -> list[str]:
        self.until(lambda lines: lines[-1:] == ["end"], timeout)
        self.process.wait(10)
        self.reader.join()
        return [line for line in self.lines if line.startswith("final")]

    def count(self, word: str) -> int:
        with self.news:
            return sum(line.startswith(word) for line in self.lines)

    def one_more(self, word: str, timeout: float = 60.0) -> None:
        seen = self.count(word)
        self.until(lambda lines: sum(line.startswith(word) for line in lines) > seen, timeout)

    def stop(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.reader.join()


@pytest.fixture
def start(launcher):
    runs: list[Run] = []

    def go(options: list[str], call: str, **env: str) -> Run:
        runs.append(Run(launcher, options, call, env))
        return runs[-1]

    yield go
    for r in runs:
        r.stop()


def test_a_killed_worker_is_replaced(start, tmp_path):
    """The end is the undisturbed run's, to the last bit, and the report tells what the loss cost."""
    undisturbed = start(["-np", "3"], "work(40)").ends()
    assert len(undisturbed) == 3 and len(set(undisturbed)) == 1
    report = tmp_path / "report.json"
    run = start(["-np", "3", "--restarts", "2", "--report", str(report)], "work(40, 0.01)")
    run.until(lambda lines: sum(line.startswith("pid") for line in lines) == 3)
    time.sleep(0.1)
    os.kill(run.at_work()[1], signal.SIGKILL)
    assert run.ends() == undisturbed, "\n".join(run.lines)
    assert run.count("reset") == 2 and run.process.returncode == 0
    assert any("rank 1" in line and "killed by signal 9 (SIGKILL): starting it again" in line for line in run.lines)
    first, second = json.loads(report.read_text())["epochs"]
    assert first["gone"]["rank"] == 1 and "recovery" not in first
    assert second["recovery"]["seconds"] > 0 and second["recovery"]["steps"] in (0, 1), second
    assert any(
        re.search(r"signal 9 \(SIGKILL\); recovered in [0-9.]+ s, [01] steps? done again", line) for line in run.lines
    ), run.lines


def test_survivors_go_on(start):
    run = start(["-np", "3", "--min-np", "2", "--on-loss", "continue"], "work(40, 0.01)")
    run.until(lambda lines: sum(line.startswith("pid") for line in lines) == 3)
    time.sleep(0.1)
    os.kill(run.at_work()[0], signal.SIGKILL)
    ends = run.ends()
    assert len(ends) == 2 and len(set(ends)) == 1, "\n".join(run.lines)
    assert {line.split()[2] for line in run.lines if line.startswith("reset")} == {"2"}


def test_who_cannot_go_on_says_so_in_one_sentence(start):
    """Too few are left: the job ends, and the survivor, which waits for an epoch that cannot come, ends with it."""
    run = start(["-np", "2", "--min-np", "2", "--on-loss", "continue"], "work(4000, 0.01)")
    run.until(lambda lines: sum(line.startswith("pid") for line in lines) == 2)
    os.kill(run.at_work()[0], signal.SIGKILL)
    run.ends()
    assert run.process.returncode == 128 + signal.SIGKILL
    # The coordinator's word and the launcher's SIGTERM come in the same moment.
    said = [
        line
        for line in run.lines
        if re.search("this worker was asked to leave the job: (the job ends: rank 0 on|SIGTERM)", line)
    ]
    assert len(said) == 1 and not any("Traceback" in line for line in run.lines), "\n".join(run.lines)


def test_a_forked_child_is_no_worker(monkeypatch):
    """SIGTERM ends it, as a loader's worker must end, and is not the job's."""
    asked: list[str] = []
    monkeypatch.setattr(hora.elastic._world, "is_elastic", lambda: True)
    monkeypatch.setattr(hora.elastic._world, "drain", asked.append)
    with frontend.drained_by_sigterm():
        ready, say = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(say, b"1")
            time.sleep(60)
            os._exit(3)
        assert os.read(ready, 1) == b"1"
        os.kill(child, signal.SIGTERM)
        status = os.waitpid(child, 0)[1]
        assert os.WIFSIGNALED(status), status
        assert os.WTERMSIG(status) == signal.SIGTERM
        assert not asked
        os.kill(os.getpid(), signal.SIGTERM)
        end = time.monotonic() + 10
        while not asked and time.monotonic() < end:
            time.sleep(0.001)
    assert asked == ["SIGTERM"]


def test_the_launchers_patience_ends_first(start):
    """With a discovery it waits for workers, says for whom, and ends the job; the worker adds no reason of its own."""
    run = start(
        [
            "-np",
            "2",
            "--min-np",
            "2",
            "--elastic-timeout",
            "2",
            "--blacklist",
            "slot",
            "--discover",
            "echo localhost:2",
        ],
        "work(4000, 0.01)",
    )
    run.until(lambda lines: sum(line.startswith("pid") for line in lines) == 2)
    os.kill(run.at_work()[0], signal.SIGKILL)
    run.ends()
    text = "\n".join(run.lines)
    assert run.process.returncode == 75 and "Traceback" not in text and "deadline" not in text, text
    # The worker hears it too, unless the signal that ends it comes first.
    assert sum("left for 2s, and --min-np is 2: add hosts, or lower --min-np" in line for line in run.lines) in (
        1,
        2,
    ), text
    assert "restarts used" not in text, text  # no budget was given


def test_who_waits_leaves_when_asked(start):
    run = start(["-np", "2", "--restarts", "2"], "deserted()")
    run.until(lambda lines: sum(line.startswith("pid") for line in lines) == 2)
    os.kill(run.at_work()[1], signal.SIGKILL)
    run.until(lambda lines: "waits" in lines)
    time.sleep(0.3)
    os.kill(run.at_work()[0], signal.SIGTERM)
    run.until(
        lambda lines: any("rank 0 on" in line and "left before the work was done: SIGTERM" in line for line in lines),
        20,
    )
    assert "hora: this worker was asked to leave the job: SIGTERM" in run.lines, "\n".join(run.lines)


def test_newcomers_are_taken_in_at_a_commit(start):
    """Survivors go on at once, and take the replacement in when it is there."""
    run = start(["-np", "3", "--min-np", "2", "--on-loss", "continue", "--restarts", "1"], "work(400, 0.005)", SAME="1")
    run.until(lambda lines: sum(line.startswith("pid") for line in lines) == 3)
    os.kill(run.at_work()[2], signal.SIGKILL)
    ends = run.ends()
    assert len(ends) == 3 and len(set(ends)) == 1, "\n".join(run.lines)
    sizes = [line.split()[2] for line in run.lines if line.startswith("reset")]
    assert sizes in (["2", "2", "3", "3"], ["3", "3"]), "\n".join(run.lines)
    assert float(ends[0].split()[1]) == 100.0 * sum(step % 1000 for step in range(400))


def test_a_drained_worker_loses_nothing(start):
    undisturbed = start(["-np", "2"], "work(60)").ends()
    run = start(["-np", "2", "--restarts", "1"], "work(60, 0.01)")
    run.until(lambda lines: sum(line.startswith("pid") for line in lines) == 2)
    os.kill(run.at_work()[1], signal.SIGTERM)
    assert run.ends() == undisturbed, "\n".join(run.lines)
    assert run.process.returncode == 0


def test_the_programs_own_errors_end_the_job(start):
    run = start(["-np", "2", "--restarts", "1"], "fails(3)")
    run.ends()
    assert run.process.returncode != 0
    assert any("KeyError: 'the data ends here'" in line for line in run.lines), "\n".join(run.lines)


def test_a_second_training_in_one_job(start):
    run = start(["-np", "2", "--restarts", "1"], "twice()")
    assert run.ends() == ["final 6", "final 6"] and run.process.returncode == 0, "\n".join(run.lines)


def test_who_comes_when_all_is_done_ends_well(start, tmp_path):
    done = tmp_path / "done"
    run = start(["-np", "2", "--min-np", "1", "--on-loss", "continue", "--restarts", "1"], f"late({str(done)!r})")
    run.until(lambda lines: any("nothing is left to do for this worker" in line for line in lines), 60)
    Path(f"{done}.heard").touch()
    assert run.ends() == ["final 5"] and run.process.returncode == 0, "\n".join(run.lines)


def left_of(mark: str) -> list[str]:
    """The processes that have it in their environment."""
    found = []
    for p in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (p / "environ").read_bytes():
                found.append((p / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it has ended
            pass
    return found


@pytest.mark.parametrize("policy", ["replace", "continue"])
def test_random_faults(start, policy, tmp_path):
    """Workers are killed, asked to leave and stopped for a while at random moments, those of the beginning of an epoch
    too."""
    faults = 50 if os.environ.get("HORA_SOAK") else 5
    seed = int(os.environ.get("HORA_SEED", random.randrange(10**6)))
    print(f"HORA_SEED={seed} pytest {__file__} -k 'random_faults and {policy}'")
    draw = random.Random(seed)
    kinds = [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP]
    kinds += draw.choices(kinds if policy == "replace" else [signal.SIGKILL, signal.SIGSTOP], k=faults - 3)
    draw.shuffle(kinds)
    shared = set(os.listdir("/dev/shm"))
    options = [
        "-np",
        "3",
        "--restarts",
        str(3 * faults),
        "--on-loss",
        policy,
        *(["--min-np", "1"] if policy == "continue" else []),
    ]
    steps = 60 * faults
    same = {"SAME": "1"} if policy == "continue" else {}
    run = start(options, f"work({steps}, 0.01)", TMPDIR=str(tmp_path), **same)
    gone: set[int] = set()
    done, changes = 0, True
    for kind in kinds:
        if changes:
            run.one_more("pid")
        time.sleep(draw.random() * 0.3)
        victims = [p for p in run.at_work().values() if p not in gone]
        if not victims or run.count("final"):
            break
        victim = draw.choice(victims)
        changes = kind != signal.SIGSTOP
        try:
            os.kill(victim, kind)
            if not changes:
                time.sleep(draw.random() * 0.5)  # far less than the silence after which a rank counts as lost
                os.kill(victim, signal.SIGCONT)
        except ProcessLookupError:
            pass
        if changes:
            gone.add(victim)
        done += 1
    ends = run.ends(120)
    left = sum("left before the work was done: " in line for line in run.lines)
    there = 3 if policy == "replace" else 3 - left  # nobody takes the place of who left, where the others go on
    assert len(ends) == there >= 2 and len(set(ends)) == 1, "\n".join(run.lines)
    if policy == "continue":
        want = 100.0 * sum(step % 1000 for step in range(steps))
        assert float(ends[0].split()[1]) == want
    else:
        assert ends == start(["-np", "3"], f"work({steps})").ends()
    assert done >= min(faults, 3)
    assert not left_of(f"TMPDIR={tmp_path}\0")
    assert not list(tmp_path.iterdir())  # the secret's folder least of all
    assert not [n for n in set(os.listdir("/dev/shm")) - shared if "hora" in n]


# -- the parts


def alone():
    if not hora.is_initialized():
        hora.init(rank=0, size=1)


def test_a_state_comes_back():
    import torch

    alone()
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    w = np.arange(6.0).reshape(2, 3)
    state = State(model=model, optimizer=optimizer, w=w, mask=torch.ones(4), log=[1], best=None)
    state.sync()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state.w *= 2
    state.mask = state.mask * 3  # another tensor
    state.log.append(2)
    state.best = 0.5
    state.restore()
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert not optimizer.state_dict()["state"]
    assert state.w is w and np.array_equal(w, np.arange(6.0).reshape(2, 3))
    assert torch.equal(state.mask, torch.ones(4)) and state.log == [1] and state.best is None
    state.log.append(3)
    state.commit()
    state.log.append(4)
    state.restore()
    assert state.log == [1, 3] and state.commits == 2


def test_steps_are_counted_where_something_counts_them():
    count = hora.elastic.steps_since
    assert (
        count({"step": 30, "w": 1.0}, {"step": 35}) == 5
        and count({"batch": 3, "epoch": 2}, {"batch": 3, "epoch": 2}) == 0
    )
    assert count({"epoch": 2}, {"epoch": 2}) == -1
    assert count({"batch": 3, "epoch": 2}, {"batch": 9, "epoch": 3}) == -1  # it began anew
    assert count({"step": 3.5}, {"step": 4.5}) == count({"step": 9}, {"step": 3}) == -1
    state = State(w=np.zeros(3), step=7)
    assert state._undone() == -1  # nothing has been committed
    state._keep()
    state.commits = 1
    state.step += 2
    assert state._undone() == 2


def test_half_a_state_is_no_state(monkeypatch):
    """A newcomer that loses its source between two values has its first values again."""
    alone()
    state = State(w=np.zeros(3), step=0)

    def breaks(root):
        state.w[:] = 7
        raise hora.PeerLostError("lost rank 0")

    monkeypatch.setattr(state, "_receive", breaks)
    with pytest.raises(hora.PeerLostError):
        state.sync()
    state.restore()
    assert state.w.tolist() == [0, 0, 0] and state.step == 0 and state.commits == 0


def test_what_cannot_be_kept_leaves_the_last_commit():
    alone()
    state = State(a=np.ones(2), b=[1])
    state.sync()
    state.a[:] = 5
    state.b = [threading.Lock()]  # cannot be copied
    with pytest.raises(TypeError):
        state.commit()
    state.restore()
    assert state.a.tolist() == [1, 1] and state.b == [1] and state.commits == 1


def test_names_of_the_state_itself_are_refused():
    with pytest.raises(AttributeError, match="cannot be called 'commit'"):
        State(commit=1)


def differ():
    hora.init()
    r = hora.rank()
    state = State(w=np.zeros(3 + r), n=0)
    try:
        state.sync()
    except hora.MismatchError as e:
        assert str(e).startswith(
            "synchronise state: 'w' is an array of float64 and shape (3,) on rank 0 and an array of float64 and shape (4,)"
        ), e
    else:
        raise AssertionError("no error")
    hora.barrier()


def test_states_must_be_alike(ranks):
    ranks(2, differ)


def plain(path):
    """Without a launcher that replaces anybody a loss is the operation's error."""
    hora.init()

    @hora.elastic.run
    def train(state):
        hora.barrier()
        if hora.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            hora.barrier()
            state.commit()

    try:
        train(State(n=0))
    except hora.PeerLostError as e:
        print("lost", e.rank)


def test_elsewhere_a_loss_is_an_error(job, tmp_path):
    ends = job(2, plain, args=(str(tmp_path),)).wait(20)
    assert ends[0].out == "lost 1\n", ends[0].err


def test_order_does_not_depend_on_the_world():
    for n in (1, 2, 3, 10, 100, 1000):
        for size in (1, 2, 3, 7):
            taken = []
            s = ElasticSampler(n, seed=1)
            parts = [list(s.indices(r, size)) for r in range(size)]
            assert len({len(p) for p in parts}) == 1
            for turn in zip(*parts, strict=True):
                taken += turn
            one = list(ElasticSampler(n, seed=1).indices(0, 1))
            assert sorted(one) == list(range(n))
            assert taken[:n] == one
            assert taken[n:] == one[: len(taken) - n] or len(taken) - n > n  # the last turn begins the order again


def test_every_sample_once_when_the_world_changes():
    s = ElasticSampler(1000, seed=9)
    seen = []
    for size, turns in ((4, 50), (3, 100), (5, 100)):
        parts = [s.indices(r, size) for r in range(size)]
        for _ in range(turns):
            seen += [next(p) for p in parts]
        s.done += size * turns
    assert sorted(seen) == list(range(1000))


def test_epochs_and_seeds_have_orders_of_their_own():
    a = list(ElasticSampler(50, seed=1).indices(0, 1))
    b = list(ElasticSampler(50, seed=2).indices(0, 1))
    s = ElasticSampler(50, seed=1)
    s.set_epoch(1)
    assert a != b and a != list(s.indices(0, 1)) and a != sorted(a)
    assert list(ElasticSampler(5, shuffle=False).indices(0, 1)) == [0, 1, 2, 3, 4]


def test_a_sampler_is_saved():
    alone()
    s = ElasticSampler(range(10), seed=1)
    first = list(s)
    s.record(4)
    t = ElasticSampler(range(10), seed=1)
    t.load_state_dict(s.state_dict())
    assert list(t) == first[4:] and len(t) == 6
