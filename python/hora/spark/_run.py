"""hora.spark.run: a function on the executors of a Spark cluster, as one gang or as workers that come and go."""

from __future__ import annotations

import os
import platform
import queue
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hora import _run, _travel
from hora._version import __version__
from hora.errors import ArgumentError, HoraError

from . import _cluster, _ended, _first, _refusals, _spoken, _task, _timeline
from ._ended import WORD, Lost
from ._hub import Hub, environment

__all__ = ["launch", "run"]

_UNREACHED = 69  # an agent's exit code that did not reach its hub, or lost it


def run(
    fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, np: int | None = None, *,
    min_np: int | None = None, max_np: int | None = None, dataframe: Any = None, env: Mapping[str, str] | None = None,
    spark: Any = None, restarts: int = 0,
) -> list[Any]:  # fmt: skip
    """Run `fn(*args, **kwargs)` in `np` tasks of the Spark cluster and return their results, by rank.

    The tasks run at once, as a gang; without `np` there is one in each task slot. The function calls `hora.init()`
    itself, and runs in a process of its own beside each task's. It travels by value, with the functions of modules
    beside the program. Variables HOROVOD_*, HORA_* and NCCL_* of the driver's environment reach the workers, and `env`
    on top.

    With `min_np` or `max_np` the job is elastic, and the function trains with `hora.elastic.run`: ordinary tasks, which
    may come and go as executors do. `restarts` is how often a gang that lost a worker is started anew; of an elastic
    job, how many lost workers are started again. `dataframe` gives each task a part of the rows:
    `hora.spark.batches(rows)`.

    >>> def train(lr):
    ...     import hora
    ...     hora.init()
    ...     return hora.allreduce(lr)
    >>> hora.spark.run(train, args=(0.1,), np=2)
    [0.2, 0.2]
    """
    return launch(
        fn, args, kwargs, np, min_np=min_np, max_np=max_np, dataframe=dataframe, env=env, spark=spark, restarts=restarts
    )


@_refusals.speaking
def launch(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None, np: int | None, *,
    min_np: int | None = None, max_np: int | None = None, dataframe: Any = None, env: Mapping[str, str] | None = None,
    spark: Any = None, restarts: int = 0, elastic: bool = False, limit: float | None = None,
    show: Callable[[str], str | None] | None = None,
    flags: Sequence[str] = (), out: Any = None, err: Any = None,
    inside: Callable[[Callable[[], Any]], Any] | None = None, words: _refusals.Wording = _refusals.PLAIN,
    dealt: bool = False,
) -> list[Any]:  # fmt: skip
    """run, with what other front ends choose: the limit of the start, which lines of output are shown, where, flags of
    the hub.

    With `inside` the function runs in the tasks' own Python workers, within a call of that, and each result is (the
    task's place, its value or None); only that of the first task has one. With `elastic` the job is that without
    `min_np` too. `words` are the caller's for what advice speaks of. A frame that is dealt has np partitions already.
    """
    _run._check(fn, args, kwargs, 1 if np is None else np, words.who, words.np)
    if not isinstance(restarts, int) or restarts < 0:
        raise ArgumentError(f"spark.run: restarts={restarts!r} is no number of restarts; give 0 or more")
    elastic = elastic or min_np is not None or max_np is not None
    if elastic and dataframe is not None:
        raise ArgumentError(
            "spark.run: dataframe= with min_np= or max_np=: rows are dealt to a gang; write them to files and read those with hora.dataset"
        )
    if dataframe is not None and not (hasattr(dataframe, "mapInArrow") and hasattr(dataframe, "sparkSession")):
        raise ArgumentError(
            f"spark.run: dataframe={type(dataframe).__name__} is no Spark DataFrame; spark.createDataFrame makes one, and what is not of Spark goes "
            "in args="
        )
    if env is not None and not isinstance(env, Mapping):
        raise ArgumentError(f"spark.run: env={env!r} is no mapping of names to values; give a dict")
    session = _cluster.session(spark)
    _refusals.refuse_spark_objects(fn, tuple(args), dict(kwargs or {}), words)
    payload = _travel.pack(fn, tuple(args), dict(kwargs or {}), words.who)
    limit = _cluster.start_limit() if limit is None else limit
    tell = _cluster.Teller()
    come = _cluster.dynamic(session)
    if not elastic and come:
        raise HoraError(f"spark.run: {words.dynamic()}")
    if inside is None and (note := _cluster.gpu_note(session)):
        tell(note)
    afar = _first.wanted(session, elastic)
    workers = environment(env)
    chart = _timeline.asked(workers) if inside is None else None
    if chart is not None:
        _timeline.check(chart)
    if np is None:
        np = max_np or min_np or _cluster.all_slots(session, limit, tell, words)
    least, most = (np if min_np is None else min_np), (np if max_np is None else max_np)
    if not 1 <= least <= np <= most:
        given = ", ".join(
            f"{k}={v}" for k, v in ((words.least, min_np), (words.np, np), (words.most, max_np)) if v is not None
        )
        raise ArgumentError(f"spark.run: {given}: give 1 ≤ {words.least} ≤ {words.np} ≤ {words.most}")
    if not come:  # else none are there before tasks wait for them, and the hub says how many have come
        wanted, word = (least, words.least) if elastic and min_np is not None else (np, words.np)
        have = _cluster.wait_for_slots(session, wanted, limit, tell, word)
        if have is not None and (free := max(0, have - _cluster.taken(session))) < wanted:
            be = "is" if free == 1 else "are"
            tell(
                f"{word}={wanted}, {free} of the cluster's {have} task slots {be} free now: the job waits for others to end"
            )
    if dataframe is not None and not dealt:
        dataframe = dataframe.repartition(np)
    flags = ["--start-timeout", f"{limit:.0f}", *flags]
    if elastic:
        flags += ["--min-np", str(least), "--max-np", str(most), "--restarts", str(restarts)]
    attempts, again = 1 if elastic else restarts + 1, False
    while True:
        attempts -= 1
        _cluster.settle(session)
        attempt = _Attempt(
            session, np, least, most if elastic else np, elastic, dataframe, limit, tell, chart, inside, words
        )
        try:
            return (attempt.go_afar if afar else attempt.go)(
                payload, workers, flags, show, (out or sys.stdout, err or sys.stderr)
            )
        except _Unreached as e:
            afar, attempts = True, attempts + 1
            _first.unreached.add(_cluster.key(session))
            tell(
                f"the executors do not reach this machine ({e}), so the hub runs in the first task, and output comes when the job has ended"
            )
        except Lost as e:
            if e.unbegun and not again:
                attempts, again = attempts + 1, True
                tell("Spark lost an executor before a rank had begun: the job is given to Spark once more")
                _cluster.wait_for_slots(session, np, limit, tell, words.np)
                continue
            if attempts == 0:
                raise e.error from e.error.__cause__
            print(
                f"hora: {e.error}; the job starts anew, {attempts} more time{'s' * (attempts != 1)} at most",
                file=sys.stderr,
                flush=True,
            )


class _Unreached(Exception):
    """The executors of a Connect server do not reach the client's machine."""


_TASKS_END = 30.0  # seconds in which the tasks of a job that has ended well may end
_TASK_ENDS = 3.0  # seconds in which tasks whose Python worker was ended fail by themselves


class _Attempt:
    """One hub and one Spark job."""

    def __init__(
        self, session: Any, np: int, least: int, tasks: int, elastic: bool, dataframe: Any, limit: float,
        tell: _cluster.Teller,
        chart: str | None, inside: Callable[[Callable[[], Any]], Any] | None, words: _refusals.Wording,
    ) -> None:  # fmt: skip
        self.chart, self.inside, self.words = chart, inside, words
        self.worker = "_worker" if inside is None else "_beside"
        self.session, self.np, self.least, self.tasks, self.elastic = session, np, least, tasks, elastic
        self.dataframe, self.limit, self.tell = dataframe, limit, tell
        self.happenings: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.exits: list[dict[str, Any]] = []
        self.before: int | None = None  # how many of them before Spark's job ended
        self.present = 0
        self.opened = False

    def go(
        self, payload: bytes, env: Mapping[str, str], flags: Sequence[str], show: Callable[[str], str | None] | None,
        streams: tuple[Any, Any],
    ) -> list[Any]:  # fmt: skip
        hub = Hub(
            self.np,
            payload,
            env,
            lambda kind, event: self.happenings.put((kind, event)),
            flags,
            show,
            streams,
            worker=self.worker,
        )
        job, ended = None, False
        try:
            where = self._listening(hub)
            tag = f"hora-{secrets.token_hex(6)}"
            config = self._config(hub.secret, where)
            job = _cluster.Job(
                self.session, lambda: self._frame(config), tag, lambda e: self.happenings.put(("spark", e))
            )
            code, refusal = self._until_the_end(hub)
            ended = self.opened
            hub.finish()  # its last words are read, by which the outcome goes
            if refusal is not None and not self.opened and not self.elastic and _cluster.connected(self.session):
                text = str(_spoken.spoken(refusal, self.words)).removeprefix("spark.run: ")
                if "reach the hub at" in text and os.environ.get("HORA_SPARK_HUB") != "driver":
                    raise _Unreached(text.partition(": look whether")[0])
            if code == 0 and not self.elastic:
                job.wait(
                    _TASKS_END
                )  # by themselves: a cancelled job looks failed, and the kill of a task may end its executor
            return _ended.results(self, hub, code, refusal, lambda patience: self._late(job, patience))
        finally:
            hub.stop()  # first the workers, then Spark: a cancelled task takes seconds to end
            if job is not None and job.thread.is_alive():
                if (
                    ended and self.inside is not None
                ):  # a task that is killed in barrier() ends its executor, which the next job may be on
                    job.leave(_TASK_ENDS)
                else:
                    job.cancel()
            hub.close()

    def go_afar(
        self, payload: bytes, env: Mapping[str, str], flags: Sequence[str], show: Callable[[str], str | None] | None,
        streams: tuple[Any, Any],
    ) -> list[Any]:  # fmt: skip
        """The same with the hub in the first task: all that it says comes with the rows of the job."""
        told = _first.Told(show, streams)
        job = None
        try:
            config = self._config(secrets.token_hex(32), "")
            config["first"] = {
                "np": self.np,
                "payload": payload,
                "env": dict(env),
                "flags": list(flags),
                "worker": self.worker,
            }
            job = _cluster.Job(
                self.session,
                lambda: self._frame(config),
                f"hora-{secrets.token_hex(6)}",
                lambda e: self.happenings.put(("spark", e)),
            )
            began, told_of = time.monotonic(), False
            while True:
                try:
                    _, refusal = self.happenings.get(timeout=1)
                    break
                except queue.Empty:
                    if not told_of and time.monotonic() - began > 10:
                        told_of = True
                        self.tell(
                            f"the hub runs in the first task, and nothing is heard of the job until it has ended: the cluster's page shows whether "
                            f"its {self.tasks} tasks run or wait for slots"
                        )
            if refusal is not None:
                return _ended.results(self, told, 1, refusal, lambda _: None)
            job.wait(_TASKS_END)
            end = told.take(job.rows)
            self.exits, self.opened = end["exits"], end["opened"]
            return _ended.results(self, told, end["code"], None, lambda _: None)
        finally:
            if job is not None and job.thread.is_alive():
                job.cancel()
            told.close()

    def _listening(self, hub: Hub) -> str:
        end = time.monotonic() + 30
        while True:
            try:
                kind, event = self.happenings.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise HoraError(
                    "spark.run: the hub did not start in 30 s: look whether this machine is overloaded"
                ) from None
            if kind == "hub":
                raise hub.stopped()
            if kind == "listening":
                near = _cluster.host(self.session)
                addresses = [f"[{near}]:{event['port']}" if ":" in near else f"{near}:{event['port']}"] if near else []
                return ",".join(dict.fromkeys([*addresses, *event["addrs"]]))

    def _config(self, secret: str, where: str) -> dict[str, Any]:
        program = _run.program()
        name, digest = _cluster.ship(self.session, program)
        return {
            "hub": where, "secret": secret, "program": os.path.abspath(program), "shipped": name, "digest": digest,
            "machine": platform.machine(), "version": __version__, "python": sys.version_info[:2],
            "feed": self.dataframe is not None,
            "unreached": _UNREACHED, "first": None, "inside": self.inside,
            "local": _cluster.spark_setting(self.session, "spark.master").partition("[")[0] == "local",
            "openmp": bool(_cluster.spark_setting(self.session, "spark.executorEnv.OMP_NUM_THREADS")),
        }  # fmt: skip

    def _frame(self, config: dict[str, Any]) -> Any:
        n = self.tasks
        rows = self.session.range(n, numPartitions=n) if self.dataframe is None else self.dataframe
        if config["first"]:
            return rows.mapInArrow(_task.make(config), _first.SCHEMA, barrier=True).where(_first.WHERE)
        return rows.mapInArrow(_task.make(config), _task.SCHEMA, barrier=not self.elastic)

    def _until_the_end(self, hub: Hub) -> tuple[int, BaseException | None]:
        """Wait for the hub; its exit code, and what Spark said if its job ended first."""
        began = time.monotonic()
        refusal: BaseException | None = None
        patience: float | None = None  # until when the hub may say itself why Spark's job has ended
        while True:
            try:
                kind, event = self.happenings.get(timeout=1 if patience is None else 0.1)
            except queue.Empty:
                kind, event = "", None
            hub.status.draw()
            waited = time.monotonic() - began
            if patience is not None and time.monotonic() > patience:
                patience = None
                hub.stop()
            if kind == "hub":
                return int(event["code"]), refusal
            if kind == "registered":
                self.present = int(event["count"])
            elif kind in ("opened", "started"):
                self.opened = True
            elif kind == "exited":
                self.exits.append(event)
            elif kind == "spark" and event is not None and refusal is None:
                refusal = event
                self.before = len(self.exits)
                if self.opened and not _spoken.final(refusal) and not _spoken.lost(refusal):
                    patience = time.monotonic() + WORD
                else:
                    hub.stop()
            if (
                not self.opened and refusal is None and waited > self.limit + 5
            ):  # the hub has a limit of its own, and says what is awaited
                refusal = self.too_few()
                hub.stop()

    def too_few(self) -> HoraError:
        slots = (
            ", and this job has let go of them for another that may wait too" if self.elastic and self.present else ""
        )
        return HoraError(
            f"spark.run: {self.present} of {self.least} workers started in {self.limit:.0f} s: the cluster may have fewer than {self.least} free "
            f"task slots{slots}; give a smaller {self.words.least if self.elastic else self.words.np}, or wait longer with HORA_START_TIMEOUT"
        )

    def _late(self, job: _cluster.Job, patience: float) -> BaseException | None:
        """What Spark says a moment after the hub: of rows that it did not compute, of a host that was lost."""
        job.wait(patience)
        while not self.happenings.empty():
            kind, event = self.happenings.get()
            if kind == "spark" and event is not None:
                return event
        return None
