"""The calls of a server, for programs."""

from __future__ import annotations

import getpass
import hashlib
import http.client
import io
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Union

from .. import _report
from ._flags import Asked, job_number, names, sort, words
from ._http import Http, Unreachable
from ._snapshot import Snapshot
from ._source import source
from ._types import Artifact, Job, Line, Metric, ServerError, artifact, job, line, metric
from ._where import find

if TYPE_CHECKING:
    from typing_extensions import Unpack

PATIENCE = 60.0  # how long a follower waits for a server that has gone away
BEAT = 45.0  # a silent stream says every 15 s that it lives
ASKED = 10_000  # contents that one call asks for: no server of any release refuses so many for their size
REPORTED = 10_000  # points that one call takes
_NONE = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}  # what JSON has no number for
Content = Union[str, "os.PathLike[str]", bytes, IO[bytes]]


class Client:
    """One server of jobs, `hora up`'s for example.

    Without arguments it is the one that HORA_SERVER and HORA_TOKEN name, else the one that `hora up` or `hora login`
    was called for last. Jobs are named by their number. What the server refuses is a ServerError with its sentence.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, timeout: float = 30.0) -> None:
        self.url, found = find(url, token)
        self._http = Http(self.url, found, timeout)

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def submit(
        self,
        command: Sequence[str],
        *,
        np: int | None = None,
        folder: str | os.PathLike[str] | Snapshot | None = ".",
        env: Mapping[str, str] | None = None,
        pip: str | Iterable[str] = (),
        env_file: str | os.PathLike[str] | None = None,
        environment: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        spec: Mapping[str, Any] | None = None,
        **asked: Unpack[Asked],
    ) -> Job:
        """Hands a job to the server.

        `command` is a list of words. The folder goes along (None, or no_code=True: nothing does). Further arguments
        are the flags of `hora submit` with `_` for `-` (min_np, gpus_per_rank, time_limit="4h", memory="8GiB",
        secret, storage_credentials, ...) and the names that the server's document has for them (secrets,
        credentials); numbers are bytes and seconds. `spec` takes the fields of a job file.
        """
        own, queue = sort(asked)
        if asked.get("no_code"):
            folder = None
        full = dict(spec or {}, command=words(command), **own)
        if np is not None:
            full["np"] = np
        if env:
            full["env"] = {**(full.get("env") or {}), **env}
        document: dict[str, Any] = {"spec": full, **queue}
        needs = dict(environment or {})
        needs["pip"] = [*needs.get("pip", ()), *names(pip)]
        if env_file is not None:
            needs["file"] = {"name": str(env_file), "text": _with_included(Path(env_file))}
        if any(needs.values()):
            document["environment"] = {k: v for k, v in needs.items() if v}
        if tags:
            document["tags"] = {k: str(v) for k, v in tags.items()}
        if folder is not None:
            taken = folder if isinstance(folder, Snapshot) else Snapshot(folder)
            document["code"] = self._send(taken)
            document["source"], diff = source(taken.folder, taken.own)
            if diff:
                self._put(document["source"]["diff"], diff)
        return job(self._http.call("POST", "/jobs", body=document, headers={"X-Hora-User": _user()}))

    def _send(self, taken: Snapshot) -> str:
        content, name = taken.encode()
        asked = [name, *taken.content]
        missing: set[str] = set()
        for i in range(0, len(asked), ASKED):
            missing.update(self._http.call("POST", "/blobs/missing", body={"hashes": asked[i : i + ASKED]}))
        for digest in missing - {name}:
            self._put(digest, taken.content[digest])
        if name in missing:  # last: who has the list has the files
            self._put(name, content)
        return name

    def _put(self, digest: str, content: Path | bytes) -> None:
        headers = {"Content-Type": "application/octet-stream"}

        def once() -> None:
            if isinstance(content, bytes):
                self._http.open("PUT", f"/blobs/{digest}", body=content, headers=headers).close()
                return
            with content.open("rb") as f:  # not read into memory: urllib sends it as it is
                headers["Content-Length"] = str(os.fstat(f.fileno()).st_size)
                self._http.open("PUT", f"/blobs/{digest}", body=f, headers=headers).close()

        self._http.again(once)

    def jobs(
        self, states: str | Iterable[str] = (), project: str | None = None, limit: int | None = None
    ) -> Iterator[Job]:
        """Jobs, the newest first, one after the other (a generator): of these states and this project where they are
        given."""
        query: dict[str, Any] = {"limit": min(limit or 200, 1000)}
        if states:
            query["state"] = ",".join(names(states))
        if project:
            query["project"] = project
        left = limit
        while True:
            page = self._http.call("GET", "/jobs", query)
            for raw in page["jobs"]:
                if left is not None:
                    if left == 0:
                        return
                    left -= 1
                yield job(raw)
            if not page.get("next"):
                return
            query["cursor"] = page["next"]

    def job(self, id: int) -> Job:
        """One job, and why it waits."""
        return job(self._http.call("GET", f"/jobs/{job_number(id)}"))

    def story(self, id: int) -> list[dict[str, Any]]:
        """What happened to a job, in order."""
        return list(self._http.call("GET", f"/jobs/{job_number(id)}/happenings"))

    def cancel(self, id: int) -> Job:
        """Ends a job."""
        return self._do(id, "cancel")

    def pause(self, id: int) -> Job:
        """Keeps a job from running; one that runs is drained first."""
        return self._do(id, "pause")

    def resume(self, id: int) -> Job:
        """Lets a paused job queue."""
        return self._do(id, "resume")

    def _do(self, id: int, what: str) -> Job:
        return job(self._http.call("POST", f"/jobs/{job_number(id)}/{what}"))

    def priority(self, id: int, priority: int) -> Job:
        """Gives a job another priority, 0 to 100; higher comes first."""
        return job(self._http.call("POST", f"/jobs/{job_number(id)}/priority", body={"priority": priority}))

    def tag(self, id: int, tags: Mapping[str, str] | None = None, remove: str | Iterable[str] = (), **more: str) -> Job:
        """Gives a job tags, whether it has ended or not, and takes others from it."""
        set_ = {k: str(v) for k, v in {**(tags or {}), **more}.items()}
        return job(
            self._http.call("PATCH", f"/jobs/{job_number(id)}/tags", body={"set": set_, "remove": names(remove)})
        )

    def logs(self, id: int, follow: bool = False, rank: int | None = None) -> Iterator[Line]:
        """What a job has written, line by line (a generator), with `follow` until it has ended; of one rank where it
        is given, -1 for hora itself."""
        return self._logs(job_number(id), follow, rank)

    def _logs(self, id: int, follow: bool, rank: int | None) -> Iterator[Line]:
        query: dict[str, Any] = {} if rank is None else {"rank": rank}
        if follow:
            for kind, raw in self._follow(id, query):
                if kind == "line":
                    yield line(raw)
            return
        while True:
            page = self._http.call("GET", f"/jobs/{job_number(id)}/logs", query)
            yield from map(line, page["lines"])
            if not page["more"]:
                return
            query["cursor"] = page["next"]

    def changes(self, id: int, lines: bool = True) -> Iterator[Job | Line]:
        """A job whenever it changes, and its lines as they come (a generator); the last one is the job as it has
        ended."""
        told = self._follow(job_number(id), {} if lines else {"quiet": "true"})
        return (line(raw) if kind == "line" else job(raw) for kind, raw in told)

    def wait(self, id: int, timeout: float | None = None) -> Job:
        """Waits until a job has ended, and answers it; TimeoutError when that takes longer."""
        last: Job | None = None
        for _, raw in self._follow(job_number(id), {"quiet": "true"}, timeout):
            last = job(raw)
        assert last is not None
        return last

    def _follow(self, id: int, query: dict[str, Any], timeout: float | None = None) -> Iterator[tuple[str, Any]]:
        """Events of a job until it has ended: a server that is started anew is followed further, from where the last
        one was."""
        query = dict(query)
        end = None if timeout is None else time.monotonic() + timeout
        away: float | None = None
        while True:
            try:
                left = BEAT if end is None else min(BEAT, max(0.01, end - time.monotonic()))
                with self._http.open(
                    "GET",
                    f"/jobs/{job_number(id)}/follow",
                    query,
                    headers={"Accept": "text/event-stream"},
                    timeout=left,
                ) as stream:
                    away = None
                    for name, at, raw in _events(stream, end):
                        yield name, raw
                        if at:
                            query["cursor"] = at
                        if name == "end":
                            return
                problem: Exception = Unreachable(f"the server at {self.url} ended the answer")
            except (ServerError, OSError, http.client.HTTPException, ValueError) as e:
                if isinstance(e, ServerError) and not isinstance(e, Unreachable) and e.status != 503:
                    raise
                problem = e
            now = time.monotonic()
            if end is not None and now >= end:
                raise TimeoutError(f"job {id} has not ended after {timeout:g} s")
            away = away or now
            if now - away > PATIENCE:
                raise (
                    problem
                    if isinstance(problem, ServerError)
                    else Unreachable(f"follow job {id} at {self.url}: {problem}")
                )
            time.sleep(0.2)

    def metrics(self, id: int, name: str | None = None, points: int = 100000) -> list[Metric]:
        """What ranks reported, with at most so many points of each."""
        query: dict[str, Any] = {"points": points}
        if name is not None:
            query["name"] = name
        return [metric(m) for m in self._http.call("GET", f"/jobs/{job_number(id)}/metrics", query)]

    def report(self, id: int, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Adds numbers to what a job has reported, from outside of it: while it waits, runs, or is over.

        Without a step each comes after its metric's last. What a job's own processes have to say goes by hora.report.
        """
        points: list[dict[str, Any]] = []
        for name, one in metrics.items():
            number = _report.value(str(name), one)
            point = {"name": str(name), "value": 0.0 if isinstance(number, str) else number}
            if isinstance(number, str):
                point["value_is"] = _NONE[number]
            points.append(point if step is None else {**point, "step": _report.number(step)})
        for i in range(0, len(points), REPORTED):
            self._http.call("POST", f"/jobs/{job_number(id)}/metrics", body={"points": points[i : i + REPORTED]})

    def artifacts(self, id: int) -> list[Artifact]:
        """What came back of outputs/."""
        return [artifact(a) for a in self._http.call("GET", f"/jobs/{job_number(id)}/artifacts")]

    def upload(self, id: int, path: str, content: Content) -> Artifact:
        """Adds a file to what came back of a job, under a path below outputs/: a file's name, its content, or an open
        one."""
        if isinstance(content, (str, os.PathLike)):
            data = Path(content).read_bytes()
        else:
            data = content if isinstance(content, bytes) else content.read()
        digest = hashlib.sha256(data).hexdigest()
        if self._http.call("POST", "/blobs/missing", body={"hashes": [digest]}):
            self._put(digest, data)
        return artifact(
            self._http.call("POST", f"/jobs/{job_number(id)}/artifacts", body={"path": path, "hash": digest})
        )

    def read(self, one: Artifact) -> bytes:
        """A file's content: one of those that artifacts(id) answers."""
        if not isinstance(one, Artifact):
            raise TypeError(f"read takes a file as artifacts(id) answers it, and not {one!r}: give one of those")
        with io.BytesIO() as to:
            self._fetch(one, to)
            return to.getvalue()

    def _fetch(self, one: Artifact, to: IO[bytes]) -> None:
        h = hashlib.sha256()
        with self._http.open("GET", f"/blobs/{one.hash}") as answer:
            try:
                while block := answer.read(1 << 20):
                    h.update(block)
                    to.write(block)
            except http.client.HTTPException as e:
                raise Unreachable(f"fetch {one.path}: {e}: fetch it again") from None
        if h.hexdigest() != one.hash:
            raise ServerError(f"fetch {one.path}: what came has another hash: fetch it again")

    def download(self, id: int, to: str | os.PathLike[str], paths: str | Iterable[str] | None = None) -> list[Path]:
        """Writes files that came back below a folder: all, or those of these paths."""
        root, made = Path(to).resolve(), []
        found = {a.path: a for a in self.artifacts(id)}
        for path in found if paths is None else names(paths):
            if path not in found:
                raise ServerError(f"job {id} has no file {path}: artifacts({id}) lists those that there are", 404)
            at = (root / path).resolve()
            if root not in at.parents:
                raise ServerError(f"{path} leads out of {root}")
            at.parent.mkdir(parents=True, exist_ok=True)
            part = at.with_name(at.name + ".part")
            with part.open("wb") as f:
                self._fetch(found[path], f)
            shutil.move(part, at)
            made.append(at)
        return made

    def nodes(self) -> list[dict[str, Any]]:
        """The machines."""
        return list(self._http.call("GET", "/nodes"))

    def pools(self) -> list[dict[str, Any]]:
        """The pools, the server's own first."""
        return list(self._http.call("GET", "/pools"))

    def add_pool(self, name: str, provider: str = "static", **more: Any) -> dict[str, Any]:
        """Adds a pool or changes one: min, max, idle (seconds), node (cores, memory in bytes, gpus), projects, create,
        delete, list."""
        pool = {"name": name, "provider": provider, **{k: v for k, v in more.items() if v is not None}}
        return dict(self._http.call("PUT", f"/pools/{name}", body=pool))

    def remove_pool(self, name: str) -> None:
        """Removes a pool that no job uses; its nodes end."""
        self._http.call("DELETE", f"/pools/{name}")

    def me(self) -> dict[str, Any]:
        """Whom the server takes this client for: user, owner, roles."""
        return dict(self._http.call("GET", "/me"))

    def about(self) -> dict[str, Any]:
        """What the server is."""
        return dict(self._http.call("GET", "/about"))


def _events(stream: http.client.HTTPResponse, end: float | None) -> Iterator[tuple[str, str, Any]]:
    """Server-sent events: name, cursor, what they say."""
    name = at = ""
    while text := stream.readline():
        field, _, value = text.decode().rstrip("\n").partition(": ")
        if field == "id":
            at = value
        elif field == "event":
            name = value
        elif field == "data":
            yield name, at, json.loads(value)
            name = at = ""
        if end is not None and time.monotonic() >= end:
            return


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _with_included(path: Path, depth: int = 0) -> str:
    """A file's text; what a requirements file includes stands in it then."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".yml", ".yaml") or depth > 20:
        return text
    out = []
    for row in text.split("\n"):
        word, _, rest = (
            row.strip().replace("=", " ", 1).partition(" ")
            if row.strip().startswith("--req")
            else row.strip().partition(" ")
        )
        if word in ("-r", "--requirement") and rest.strip():
            row = _with_included(path.parent / rest.strip(), depth + 1)
        out.append(row)
    return "\n".join(out)
