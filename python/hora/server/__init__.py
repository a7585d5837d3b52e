"""A server of jobs, from Python: submit, follow, fetch. It needs no other package.

from hora.server import Client

server = Client()                                      # hora up's, or HORA_SERVER and HORA_TOKEN
job = server.submit(["python", "train.py"], np=2, pip=["pandas"])
for line in server.logs(job.id, follow=True):
    print(line.text)
print(server.wait(job.id).state, server.metrics(job.id))
server.download(job.id, "results")
"""

from __future__ import annotations

from ._client import Client
from ._http import Unreachable
from ._inside import tell
from ._snapshot import Snapshot
from ._types import Artifact, Job, Line, Metric, ServerError

__all__ = ["Artifact", "Client", "Job", "Line", "Metric", "ServerError", "Snapshot", "Unreachable", "tell"]
