"""A data frame's rows on their way from a Spark task to the worker beside it: Arrow batches in shared memory.

The task writes a batch into a memory file without a name and hands its descriptor over a socket that only this user can
open; the worker maps it. Nothing is written to a disk, and a batch is sent when the worker asks for it, a few ahead.
"""

from __future__ import annotations

import mmap
import os
import queue
import select
import socket
import struct
import subprocess
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import hora
from hora.errors import ArgumentError, HoraError

from . import _folders

__all__ = ["Feed", "batches"]

_AHEAD = 2  # batches that wait in the worker
_LENGTH = struct.Struct("<q")
_FAILED = -1

_UNCOMPUTED = "spark.batches: Spark failed to compute this rank's rows; its own error says why"

_begun = False


def uncomputed(error: BaseException) -> bool:
    """Whether that is what a rank says of Spark, which says why itself."""
    return str(error) == _UNCOMPUTED


class Feed:
    """The task's side. `serve` hands the batches of the task's input to the worker until the agent ends."""

    def __init__(self, source: Iterable[Any]) -> None:
        self._source = iter(source)
        self._folder = _folders.make("hora-rows-")
        self.address = os.path.join(self._folder, "rows")
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(self.address)
        self._door.listen(1)

    def serve(self, agent: subprocess.Popen[bytes]) -> None:
        ended = os.pidfd_open(agent.pid)
        try:
            worker = self._when_ready(self._door, ended, lambda: self._door.accept()[0])
            if worker is not None:
                with worker:
                    while self._when_ready(worker, ended, lambda: worker.recv(1)):
                        if not self._hand_over(worker):
                            break
        except (BrokenPipeError, ConnectionResetError):
            pass  # the worker has ended; the hub knows how
        finally:
            os.close(ended)
            self._door.close()
            _folders.remove(self._folder)

    @staticmethod
    def _when_ready(what: socket.socket, ended: int, do: Any) -> Any:
        ready, _, _ = select.select([what.fileno(), ended], [], [])
        return do() if what.fileno() in ready else None

    def _hand_over(self, worker: socket.socket) -> bool:
        """Send the next batch; False after the last one."""
        import pyarrow as pa

        try:
            batch = next(self._source, None)
        except Exception:
            worker.sendall(_LENGTH.pack(_FAILED))
            raise
        if batch is None:
            worker.sendall(_LENGTH.pack(0))
            return False
        memory = os.memfd_create("hora-rows")
        try:
            with (
                os.fdopen(os.dup(memory), "wb") as raw,
                pa.ipc.new_stream(pa.PythonFile(raw, mode="w"), batch.schema) as out,
            ):
                out.write_batch(batch)
            socket.send_fds(worker, [_LENGTH.pack(os.fstat(memory).st_size)], [memory])
        finally:
            os.close(memory)
        return True


def batches(rows: int, *, last: str = "drop") -> Iterator[Any]:
    """This rank's part of `hora.spark.run(dataframe=…)`, as pyarrow.RecordBatch of `rows` rows each; every rank makes
    equally many steps.

    Ranks do not hold exactly equally many rows. With last="drop" the steps end when one of them has no full batch left;
    with last="short" when none has rows left, and a batch may then have fewer, down to none. The rows come once, while
    Spark computes them: `list(batches(…))` keeps them for further epochs.

    >>> for batch in hora.spark.batches(256):
    ...     x = batch.column("x").to_numpy()
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise ArgumentError(f"spark.batches: rows={rows!r} is no number of rows; give 1 or more")
    if last not in ("drop", "short"):
        raise ArgumentError(f"spark.batches: last={last!r}: use 'drop' or 'short'")
    global _begun
    if _begun:
        raise HoraError(
            "spark.batches: the rows have been asked for already, and come once: keep them with list(hora.spark.batches(…))"
        )
    address = os.environ.get("HORA_SPARK_ROWS")
    if not address:
        raise HoraError("spark.batches: this job was given no rows: start it with hora.spark.run(…, dataframe=…)")
    _begun = True
    return _equal_steps(_pieces(_received(address), rows), rows, last)


def _equal_steps(pieces: Iterator[Any], rows: int, last: str) -> Iterator[Any]:
    step, empty = 0, None
    while True:
        piece = next(pieces, None)
        if piece is not None and empty is None:
            empty = piece.slice(0, 0)
        have = piece is not None and (last == "short" or piece.num_rows == rows)
        name = f"hora.spark.batches.{step}"
        if last == "drop":
            on = hora.allreduce(int(have), hora.MIN, name=name, named=True)
        else:
            on = hora.allreduce(int(have), hora.MAX, name=name, named=True)
        if not on:
            return
        if piece is None and empty is None:
            raise HoraError(
                f"spark.batches: rank {hora.rank()} has got no row at all: repartition the data frame, or give a smaller np"
            )
        yield empty if piece is None else piece
        step += 1


def _pieces(source: Iterator[Any], rows: int) -> Iterator[Any]:
    """Batches of exactly `rows` rows, and what is left at last."""
    import pyarrow as pa

    held: list[Any] = []
    count = 0
    for batch in source:
        held.append(batch)
        count += batch.num_rows
        while count >= rows:
            part: list[Any] = []
            need = rows
            while need:
                first = held.pop(0)
                part.append(first.slice(0, need))
                if first.num_rows > need:
                    held.insert(0, first.slice(need))
                need -= part[-1].num_rows
            count -= rows
            yield _one(pa, part)
    if count:
        yield _one(pa, held)


def _one(pa: Any, parts: list[Any]) -> Any:
    parts = [p for p in parts if p.num_rows]
    return parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _received(address: str) -> Iterator[Any]:
    """The task's batches, read ahead by a thread."""
    ahead: queue.Queue[Any] = queue.Queue(_AHEAD)
    threading.Thread(target=_receive, args=(address, ahead), daemon=True).start()
    while True:
        got = ahead.get()
        if got is None:
            return
        if isinstance(got, BaseException):
            raise got
        yield got


def _receive(address: str, ahead: queue.Queue[Any]) -> None:
    import pyarrow as pa

    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as task:
            task.connect(address)
            while True:
                task.sendall(b"n")
                head, descriptors, _, _ = socket.recv_fds(task, _LENGTH.size, 1)
                if len(head) < _LENGTH.size:
                    raise HoraError("spark.batches: the Spark task of this rank has ended before its rows had")
                (length,) = _LENGTH.unpack(head)
                if length == 0:
                    break
                if length == _FAILED:
                    raise HoraError(_UNCOMPUTED)
                mapped = mmap.mmap(descriptors[0], length, access=mmap.ACCESS_READ)
                os.close(descriptors[0])
                for batch in pa.ipc.open_stream(pa.py_buffer(mapped)):
                    ahead.put(batch)
        ahead.put(None)
    except BaseException as e:
        ahead.put(e if isinstance(e, HoraError) else HoraError(f"spark.batches: the rows stopped: {e}"))
