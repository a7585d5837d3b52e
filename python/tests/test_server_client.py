"""hora.server: the calls of a server from Python, on a real one."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from test_server import BIN, PATIENCE, Site

import hora
from hora import ArgumentError
from hora.server import Client, Job, ServerError, Snapshot, Unreachable

TRAIN = """
import os, sys
import hora
hora.init()
print("rank", hora.rank(), "of", hora.size(), sys.argv[1])
print("to standard error", file=sys.stderr)
told = [hora.report(early=hora.rank() + 0.5), hora.report(early=2)]  # without a step: they are counted
for step in range(3):
    hora.report(step, loss=1.0 / (step + 1 + hora.rank()))
told += [hora.report(10, late=1), hora.report(late=2, loss=float("nan"))]  # and from there on
assert told == [True] * 4, told
hora.server.tell(tags={"from": "inside"}) if hora.rank() == 0 else None
if hora.rank() == 0:
    os.makedirs("outputs/model", exist_ok=True)
    open("outputs/model/weights.txt", "w").write("3.0")
hora.shutdown()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory):
    tmp = tmp_path_factory.mktemp("site")
    s = Site(tmp)
    yield s
    s.hora("down", "--now", cwd=tmp)
    s.server.wait(PATIENCE)


@pytest.fixture
def client(site: Site, monkeypatch: pytest.MonkeyPatch) -> Client:
    for name in ("XDG_CONFIG_HOME", "HORA_SERVER", "HORA_TOKEN", "HORA_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", site.env["HOME"])
    return Client()


def test_output_that_is_no_text(client: Client) -> None:
    every = bytes(b for b in range(256) if b not in b"\r\n")
    script = f"import sys; sys.stdout.buffer.write({every!r} + 'é'.encode())"
    job = client.submit([sys.executable, "-c", script + "; print(); print('text')"], folder=None)
    lines = [line for line in client.logs(job.id, follow=True) if line.rank == 0]
    assert [line.data for line in lines] == [every + "é".encode(), b"text"]
    assert [line.text for line in lines] == [lines[0].data.decode(errors="replace"), "text"]


def test_a_job_from_its_submission_to_its_files(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("import hora.server\n" + TRAIN)
    job = client.submit(
        [sys.executable, "train.py", "now"], np=2, folder=folder, project="vision", name="first", tags={"kind": "try"}
    )
    assert isinstance(job, Job) and job.tags == {"kind": "try"} and job.document["project"] == "vision"
    lines = list(client.logs(job.id, follow=True))
    assert {(line.rank, line.text) for line in lines if line.rank >= 0 and not line.err} == {
        (0, "rank 0 of 2 now"),
        (1, "rank 1 of 2 now"),
    }
    assert [line.text for line in lines if line.err and line.rank == 1] == ["to standard error"]
    assert [line.text for line in client.logs(job.id, rank=1)].count("rank 1 of 2 now") == 1
    ended = client.wait(job.id, timeout=PATIENCE)
    assert ended.ended and ended.state == "finished" and ended.exit_code == 0
    assert ended.tags == {"kind": "try", "from": "inside"}
    found = {(m.name, m.rank): [(step, value) for step, _, value in m.points] for m in client.metrics(job.id)}
    assert found[("loss", 0)] == [(0, 1.0), (1, 0.5), (2, 1 / 3)] and found[("loss", 1)][0] == (0, 0.5)
    for rank in range(2):
        assert found[("early", rank)] == [(0, rank + 0.5), (1, 2.0)] and found[("late", rank)] == [(10, 1.0), (11, 2.0)]
    assert [(a.path, a.size) for a in client.artifacts(job.id)] == [("model/weights.txt", 3)]
    client.upload(job.id, "notes/read me.txt", b"from outside")
    made = client.download(job.id, tmp_path / "results")
    assert {p.relative_to(tmp_path / "results").as_posix() for p in made} == {"model/weights.txt", "notes/read me.txt"}
    assert (tmp_path / "results/notes/read me.txt").read_text() == "from outside"
    tagged = client.tag(job.id, {"kind": "good"}, remove=["from"], stage="two")
    assert tagged.tags == {"kind": "good", "stage": "two"} == client.job(job.id).tags
    assert job.id in [j.id for j in client.jobs(project="vision")] and not list(client.jobs(project="nobody"))
    assert next(h["kind"] for h in client.story(job.id)) == "submitted"
    # The program shows the same.
    assert (
        "good"
        in subprocess.run(
            [BIN / "hora", "job", str(job.id)], capture_output=True, text=True, check=True, timeout=PATIENCE
        ).stdout
    )


def test_waiting_cancelling_and_priorities(client: Client) -> None:
    job = client.submit(["sleep", "600"], folder=None, np=2)
    behind = client.submit(["true"], folder=None, np=2, priority=10)
    assert behind.state == "queued" and "in pool default" in behind.reason
    with pytest.raises(TimeoutError, match=f"job {behind.id} has not ended after 0.3 s"):
        client.wait(behind.id, timeout=0.3)
    assert client.priority(behind.id, 90).document["priority"] == 90
    assert client.pause(behind.id).state == "paused" and client.resume(behind.id).state == "queued"
    client.cancel(job.id)
    assert client.wait(job.id, PATIENCE).state == "cancelled"
    assert client.wait(behind.id, PATIENCE).state == "finished"
    with pytest.raises(ServerError, match=f"job {job.id} has ended: cancel comes too late") as e:
        client.cancel(job.id)
    assert e.value.status == 409


def test_the_folder_is_the_programs(client: Client, site: Site, tmp_path: Path) -> None:
    """What goes along has the same hash whoever takes it."""
    for name, text in {
        "a<b>&c.py": "x", "__init__.py": "", "data/big.bin": "0", "data/keep.bin": "1", "build/x.o": "",
        "deep/er/__pycache__/y.pyc": "", "deep/er/z.txt": "z",
        ".gitignore": "build/\n*.bin\n!keep.bin\n", "deep/.horaignore": "/er/*.log\n", "deep/er/n.log": "",
        "umläut.txt": "ü", "run.sh": "#!/bin/sh\n",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "run.sh").chmod(0o755)
    os.symlink("deep/er/z.txt", tmp_path / "link")
    os.symlink("/etc/passwd", tmp_path / "out")
    number = site.hora("submit", "--held", "true", cwd=tmp_path).strip()
    theirs = json.loads(site.hora("job", number, "--json", cwd=tmp_path))["document"]["code"]
    ours = Snapshot(tmp_path)
    assert sorted(ours.files) == [
        ".gitignore",
        "__init__.py",
        "a<b>&c.py",
        "data/keep.bin",
        "deep/.horaignore",
        "deep/er/z.txt",
        "link",
        "run.sh",
        "umläut.txt",
    ]
    assert ours.encode()[1] == theirs
    site.hora("cancel", number, cwd=tmp_path)


def test_where_a_folder_came_from_is_what_the_program_notes(client: Client, site: Site, tmp_path: Path) -> None:
    """The commit, the changed files and the diff of those that go along: the same from both, below the repository's top
    too."""
    folder = tmp_path / "all/part"
    (folder / "lib").mkdir(parents=True)
    (tmp_path / "all/above.txt").write_text("1")
    for name in ("train.py", "lib/umläut.txt", "left out.log", "gone.txt"):
        (folder / name).write_text("1")
    git = ["git", "-C", str(tmp_path / "all"), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for args in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *args], check=True, timeout=PATIENCE)
    (folder / ".horaignore").write_text("*.log\n")
    for path in (folder / "train.py", folder / "lib/umläut.txt", folder / "left out.log", tmp_path / "all/above.txt"):
        path.write_text("2")
    (folder / "gone.txt").unlink()
    number = site.hora("submit", "--held", "true", cwd=folder).strip()
    theirs = json.loads(site.hora("job", number, "--json", cwd=tmp_path))["document"]
    taken = Snapshot(folder)
    taken.add("train.py", b"the program's own, and no change of the folder's")
    for ours in (client.submit(["true"], folder=folder, held=True), client.submit(["true"], folder=taken, held=True)):
        assert ours.document["source"] == theirs["source"] and set(theirs["source"]) == {
            "folder",
            "commit",
            "changed",
            "diff",
        }
        client.cancel(ours.id)
    assert theirs["source"]["changed"] == "gone.txt, left out.log, lib/umläut.txt, train.py, .horaignore"
    page = site.hora("code", number, cwd=tmp_path)
    assert f"commit {theirs['source']['commit']}, with changes in gone.txt, left out.log, lib/umläut.txt" in page
    diff = client._http.open("GET", f"/blobs/{theirs['source']['diff']}").read().decode()
    assert "+2" in diff and "a/train.py" in diff and "left out" not in diff and "above" not in diff
    site.hora("cancel", number, cwd=tmp_path)
    bare = tmp_path / "bare"
    bare.mkdir()
    outside = client.submit(["true"], folder=bare, held=True)
    assert outside.document["source"] == {"folder": str(bare)}
    client.cancel(outside.id)


def test_both_spellings_of_what_is_asked(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submit takes the flags of hora submit and the names of the server's document, numbers and texts."""
    for name in [n for n in os.environ if n.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    client._http.call("PUT", "/projects/default/secrets/KEY", body={"value": "a2V5"})
    made = [
        client.submit(
            ["true"], no_code=True, held=True, np=2, min_np=1, gpus_per_rank=1, memory="2GiB", time_limit="1h30m",
            secret="KEY", storage_credentials=True, name="flags", restarts=3, pip="pip",
        ),
        client.submit(
            ["true"], folder=None, held=True, np=2,
            spec={"min_np": 1, "gpus_per_rank": 1, "restarts": 3, "name": "flags"}, memory=2 << 30, time_limit=5400,
            secrets=["KEY"], pip=["pip"], credentials={"AWS_SHARED_CREDENTIALS_FILE": "[default]\naws_access_key_id = id\naws_secret_access_key = key\n"},
        ),
    ]  # fmt: skip
    first, second = (dict(j.document) for j in made)
    assert first == second and first["memory"] == 2 << 30 and first["time_limit"] == 5400, (first, second)
    assert first["spec"]["min_np"] == 1 and first["spec"]["gpus_per_rank"] == 1 and first["secrets"] == ["KEY"]
    assert list(first["credentials"]) == ["AWS_SHARED_CREDENTIALS_FILE"] and first["environment"]["pip"] == ["pip"]
    for job in made:
        client.cancel(job.id)
    for given, says in {
        "min_npp": "submit has no argument min_npp: did you mean min_np",
        "follow": "submit has no argument follow: for line in server.logs",
        "xyzzy": "submit has no argument xyzzy: docs/server.md has them",
    }.items():
        with pytest.raises(TypeError, match=says):
            client.submit(["true"], folder=None, **{given: True})
    for given, value, says in (
        ("memory", "much", "memory='much' is no size: give bytes, or a text as '500MiB'"),
        ("memory", "8", "memory='8' is no size: give bytes, or a text as '500MiB'"),
        ("memory", "0.1b", "memory='0.1b' is no size: give bytes, or a text as '500MiB'"),
        ("memory", float("inf"), "memory=inf is no size: give bytes, or a text as '500MiB'"),
        ("time_limit", "soon", "time_limit='soon' is no time: give seconds, or a text as '90m'"),
    ):
        with pytest.raises(ValueError, match=says):
            client.submit(["true"], folder=None, **{given: value})


def test_what_is_no_job_and_no_command(client: Client) -> None:
    with pytest.raises(TypeError, match=r"a command is a list of words.*write it as \[\"python\", \"train.py\"\]"):
        client.submit("python train.py", folder=None)  # type: ignore[arg-type]
    for call in (
        client.job, client.logs, client.changes, client.wait, client.story, client.cancel, client.metrics,
        client.artifacts,
    ):  # fmt: skip
        for wrong in ("abc", None, 0, 1.5):
            with pytest.raises(ValueError, match="is no number of a job: give job.id"):
                call(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'abc' is no number of a job"):
        client.report("abc", {"loss": 1.0})  # type: ignore[arg-type]
    for text in ("nan", "0.5", b"1"):
        with pytest.raises(TypeError, match="is not one number: give a float"):
            client.report(1, {"x": text})
    for call in (lambda: hora.report("x", loss=1), lambda: client.report(1, {"x": 1}, step="x")):  # type: ignore[arg-type]
        with pytest.raises(
            ArgumentError, match="the step 'x' is no whole number: give one, as in hora.report.10, loss"
        ):
            call()
    with pytest.raises(TypeError, match="read takes a file as artifacts.id. answers it, and not 'x'"):
        client.read("x")  # type: ignore[arg-type]


def test_what_is_refused(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServerError, match="there is no pool gpu: take one of default"):
        client.submit(["true"], folder=None, pool="gpu")
    with pytest.raises(TypeError, match="submit has no argument prioritty: did you mean priority?"):
        client.submit(["true"], folder=None, prioritty=3)
    with pytest.raises(ServerError, match="there is no such folder"):
        client.submit(["true"], folder=tmp_path / "none")
    with pytest.raises(ServerError, match="there is no job 99999"):
        client.job(99999)
    for path in ("../x", "/etc/x", "a/../b", ""):
        with pytest.raises(ServerError):
            client.upload(1, path, b"x")
    with pytest.raises(ServerError, match="200 bytes"):
        client.tag(1, {"n" * 300: "x"})
    with pytest.raises(ServerError, match="the token is missing or wrong") as e:
        Client(client.url, "0" * 48).jobs().__next__()
    assert e.value.status == 401
    with pytest.raises(Unreachable, match="nothing listens at 127.0.0.1:1: start it with hora up") as away:
        Client("http://127.0.0.1:1", "x").about()
    assert len("".join(traceback.format_exception(away.value)).split("Traceback")) == 2  # urllib's are left out
    with pytest.raises(Unreachable, match="it speaks http, and no https: give its address as hora up prints it"):
        Client(client.url.replace("http:", "https:"), "x").about()
    with pytest.raises(ServerError, match="there is no token for http://127.0.0.1:1"):
        Client("http://127.0.0.1:1")
    with pytest.raises(ServerError, match="is no address of a server"):
        Client("here")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ServerError, match="there is no server: start one with hora up"):
        Client()
    token = tmp_path / "token"
    token.write_text(client._http._token + "\n")
    monkeypatch.setenv("HORA_TOKEN_FILE", str(token))
    monkeypatch.setenv("HORA_SERVER", client.url)
    assert Client().about()["api"] == 1 and Client().me()["owner"]


def test_beyond_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s = Site(tmp_path, 1, "--listen", "0.0.0.0")
    token = (tmp_path / "server" / "token").read_text().strip()
    bare, _, pin = s.url.partition("#")
    monkeypatch.setenv("HOME", s.env["HOME"])
    try:
        assert bare.startswith("https://") and Client().about()["api"] == 1
        assert Client(bare).about()["api"] == 1  # hora up has kept the authority
        job = Client(s.url, token).submit(["sh", "-c", "echo here"], folder=None)
        assert [line.text for line in Client(s.url, token).logs(job.id, follow=True)] == ["here"]
        with pytest.raises(ServerError, match="and not the pinned 0000"):
            Client(bare + "#" + "0" * len(pin), token).about()
        monkeypatch.setenv("HOME", str(tmp_path))
        unknown = (
            "signed by somebody whom this machine does not trust: give the whole address that hora up prints, with #"
        )
        for call in (
            Client(bare, token).about,
            lambda: Client(bare, token).wait(1),
        ):  # at once: waiting changes nothing
            with pytest.raises(ServerError, match=unknown) as e:
                call()
            assert not isinstance(e.value, Unreachable) and "_ssl.c" not in str(e.value)
        port = urlsplit(bare).port
        with pytest.raises(ServerError, match=f"http://127.0.0.1:{port} speaks https: give the whole address"):
            Client(f"http://127.0.0.1:{port}", token).about()
        with pytest.raises(ServerError, match="is not encrypted"):
            Client(bare.replace("https", "http"), token)
    finally:
        s.hora("down", "--now", cwd=tmp_path)
        s.server.wait(PATIENCE)


def test_a_submission_whose_answer_was_lost() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(PATIENCE)
    address = listener.getsockname()
    seen = []

    def key(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            head = [row.decode().strip() for row in iter(lines.readline, b"\r\n")]
            fields = dict(row.lower().split(": ", 1) for row in head[1:])
            lines.read(int(fields["content-length"]))
            seen.append(fields["idempotency-key"])
            if len(seen) == 2:
                answer = b'{"id": 7, "state": "queued", "queued": "2026-01-01T00:00:00Z", "exit_code": 0, "document": {"spec": {"command": ["true"]}}}'
                connection.sendall(
                    b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(answer) + answer
                )

    def serve() -> None:
        key(listener.accept()[0])
        listener.close()  # it was killed, and is away for a while
        threading.Event().wait(0.3)
        with socket.create_server(address) as again:
            again.settimeout(PATIENCE)
            key(again.accept()[0])

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    assert Client(f"http://127.0.0.1:{address[1]}", "x").submit(["true"], folder=None).id == 7
    server.join(PATIENCE)
    assert len(seen) == 2 and seen[0] == seen[1]


def test_a_folder_of_many_files_is_asked_for_in_parts() -> None:
    asked: list[str] = []

    class Full(http.server.BaseHTTPRequestHandler):
        """A server that has all, and reads 1 MiB of a call as earlier releases do."""

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body, fits = self.rfile.read(length), length < 1 << 20
            asked.extend(json.loads(body)["hashes"])
            self.send_response(200 if fits else 413)
            self.end_headers()
            self.wfile.write(b"[]" if fits else b'{"detail": "request body is too large"}')

        def log_message(self, *_: object) -> None: ...

    taken = Snapshot(None)
    taken.content = {hashlib.sha256(b"%d" % n).hexdigest(): b"%d" % n for n in range(20_000)}
    with http.server.HTTPServer(("127.0.0.1", 0), Full) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            name = Client(f"http://127.0.0.1:{server.server_port}", "x")._send(taken)
        finally:
            server.shutdown()
    assert asked == [name, *taken.content]


def test_content_whose_server_is_lost_on_the_way_is_sent_again(tmp_path: Path) -> None:
    text = b"0123456789abcdef" * (1 << 18)
    (tmp_path / "file").write_bytes(text)
    calls, came = [0], []

    class Cut(http.server.BaseHTTPRequestHandler):
        """A server that ends twice in the middle of what comes."""

        def do_PUT(self) -> None:
            calls[0] += 1
            if calls[0] % 3:
                self.rfile.read(1000)
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            came.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:  # the connection was cut
                self.close_connection = True

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cut) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            client = Client(f"http://127.0.0.1:{server.server_port}", "x")
            for content in (tmp_path / "file", text):
                client._put(hashlib.sha256(text).hexdigest(), content)
        finally:
            server.shutdown()
    assert came == [text, text] and calls == [6]


def test_a_folder_named_by_a_link_goes_along_as_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real/below").mkdir(parents=True)
    (tmp_path / "real/train.py").write_text("x")
    (tmp_path / "real/below/a").write_text("y")
    (tmp_path / "link").symlink_to("real")
    assert Snapshot(tmp_path / "link").encode() == Snapshot(tmp_path / "real").encode()


def test_a_call_whose_answer_is_lost_is_sent_again_with_its_key(client: Client) -> None:
    job = client.submit(["sleep", "600"], folder=None, held=True)
    keys: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))
    at = client.url.split("//")[1].split("#")[0].split(":")

    def lose_the_first_answer() -> None:
        for turn in range(2):
            one, _ = server.accept()
            with one, socket.create_connection((at[0], int(at[1]))) as real:
                asked = one.recv(1 << 16)
                while b"}" not in asked:  # the body comes behind the head
                    asked += one.recv(1 << 16)
                keys.extend(line for line in asked.split(b"\r\n") if line.lower().startswith(b"idempotency-key"))
                real.sendall(asked)
                answer = real.recv(1 << 16)
                if turn:
                    one.sendall(answer)

    teller = threading.Thread(target=lose_the_first_answer)
    teller.start()
    between = Client(f"http://127.0.0.1:{server.getsockname()[1]}", client._http._token)
    assert between.priority(job.id, 70).document["priority"] == 70
    teller.join(PATIENCE)
    server.close()
    assert len(keys) == 2 and keys[0] == keys[1]
    client.cancel(job.id)
