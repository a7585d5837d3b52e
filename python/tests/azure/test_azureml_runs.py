"""Scripts for Azure Machine Learning's SDK on a real server: the calls of published notebooks, in their order."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 120

TRAIN = """
import argparse, os
import numpy as np
from azureml.core import Run

parser = argparse.ArgumentParser()
parser.add_argument("--data-folder")
parser.add_argument("--lr", type=float)
parser.add_argument("--flag", action="store_true")
args = parser.parse_args()
run = Run.get_context()
assert not run.id.startswith("OfflineRun") and run.id == os.environ["AZUREML_RUN_ID"]
print("lr", args.lr, "flag", args.flag, "data", open(os.path.join(args.data_folder, "numbers.txt")).read())
for alpha in np.arange(0.0, 0.3, 0.1):
    run.log("alpha", alpha)
run.log("mse", np.float64(0.25))
run.log("best", "ridge")
run.log_list("shape", [3, 4.5])
for i in range(3):
    run.log_row("curve", x=i, y=i * i)
run.log_row("final", x=1)
run.log_table("table", {"a": [1, 2], "b": [3.0, 4.0]})
open("picture.png", "wb").write(b"png")
run.log_image("picture", path="picture.png")
run.tag("stage", "trained")
run.add_properties({"author": "me"})
open("model.txt", "w").write("model")
run.upload_file("outputs/model.txt", "model.txt")
run.upload_file(name="other/model.txt", path_or_stream="model.txt")
os.makedirs("logs", exist_ok=True)
open("logs/events.txt", "w").write("events")
os.makedirs("outputs", exist_ok=True)
open("outputs/plain.txt", "w").write("plain")
assert run.experiment.name == "sequence" and run.experiment.workspace.name == "books"
run.complete()
"""


def test_the_calls_of_a_training(here: Path) -> None:
    """Workspace, cluster, data, ScriptRunConfig, waiting, metrics, files, tags: as in notebooks that train on
    AmlCompute."""
    from azureml.core import Dataset, Datastore, Environment, Experiment, Run, ScriptRunConfig, Workspace
    from azureml.core.compute import AmlCompute, ComputeTarget
    from azureml.core.compute_target import ComputeTargetException
    from azureml.core.conda_dependencies import CondaDependencies
    from azureml.core.runconfig import DEFAULT_CPU_IMAGE, RunConfiguration  # noqa: F401
    from azureml.exceptions import UserErrorException
    from azureml.telemetry import set_diagnostics_collection

    set_diagnostics_collection(send_diagnostics=True)
    ws = Workspace.from_config()
    assert (ws.name, ws.subscription_id, ws.resource_group, ws.location) == ("books", "s", "g", "local")
    with pytest.raises(ComputeTargetException):
        ComputeTarget(workspace=ws, name="cpu-cluster")
    config = AmlCompute.provisioning_configuration(
        vm_size="STANDARD_D2_V2",
        vm_priority="lowpriority",
        min_nodes=0,
        max_nodes=4,
        idle_seconds_before_scaledown="300",
    )
    cluster = ComputeTarget.create(ws, "cpu-cluster", config)
    cluster.wait_for_completion(show_output=True)
    assert ComputeTarget(workspace=ws, name="cpu-cluster").get_status().serialize()["currentNodeCount"] == 0
    assert "cpu-cluster" in ws.compute_targets and AmlCompute.supported_vmsizes(workspace=ws)

    os.makedirs("data")
    Path("data/numbers.txt").write_text("1 2 3")
    store = ws.get_default_datastore()
    assert isinstance(store, Datastore) and store.datastore_type
    store.upload(src_dir="data", target_path="mnist", overwrite=True, show_progress=True)

    environment = Environment("myenv")
    environment.docker.enabled = True
    environment.python.conda_dependencies = CondaDependencies.create(
        conda_packages=["numpy"], pip_packages=["azureml-defaults"]
    )
    environment.environment_variables = {"MODE": "full"}
    environment.register(workspace=ws)
    os.makedirs("src")
    Path("src/train.py").write_text(TRAIN)
    experiment = Experiment(workspace=ws, name="sequence")
    arguments = ["--data-folder", store.path("mnist").as_mount(), "--lr", 0.1, "--flag"]
    src = ScriptRunConfig(source_directory="./src", script="train.py", arguments=arguments)
    src.run_config.target = cluster.name
    src.run_config.environment = Environment.get(ws, "myenv")
    run = experiment.submit(config=src, tags={"why": "test"})
    assert run.id == f"sequence_{run.number}" and run.get_status() in ("Queued", "Preparing", "Running")
    details = run.wait_for_completion(show_output=True)
    assert details["status"] == "Completed" == run.get_status() and details["runId"] == run.id

    metrics = run.get_metrics()
    assert metrics["alpha"] == pytest.approx([0.0, 0.1, 0.2]) and metrics["mse"] == 0.25 and metrics["best"] == "ridge"
    assert (
        metrics["shape"] == [3, 4.5]
        and metrics["curve"] == {"x": [0, 1, 2], "y": [0, 1, 4]}
        and metrics["final"] == {"x": 1}
    )
    assert metrics["table"] == {"a": [1, 2], "b": [3.0, 4.0]} and "picture.png" in metrics["picture"]
    assert run.get_metrics(name="mse") == {"mse": 0.25}
    names = run.get_file_names()
    for name in (
        "outputs/model.txt",
        "outputs/plain.txt",
        "other/model.txt",
        "picture.png",
        "logs/events.txt",
        "azureml-logs/70_driver_log_0.txt",
    ):
        assert name in names, names
    assert not [n for n in names if "metrics-" in n or n.endswith(".keep")]
    run.download_file("outputs/model.txt", output_file_path="got/model.txt")
    run.download_file("azureml-logs/70_driver_log_0.txt", "log.txt")
    assert Path("got/model.txt").read_text() == "model" and "lr 0.1 flag True data 1 2 3" in Path("log.txt").read_text()
    run.download_files(prefix="outputs", output_directory="all")
    assert sorted(p.name for p in Path("all/outputs").iterdir()) == ["model.txt", "plain.txt"]
    with pytest.raises(UserErrorException, match="the run has no file outputs/none"):
        run.download_file("outputs/none")
    assert run.get_tags() == {"why": "test", "stage": "trained"} and run.get_properties() == {"author": "me"}
    run.tag("quality", "fantastic")
    run.log("score", 3)
    run.upload_file("outputs/notes.txt", __file__)
    again = Run(experiment, run.id)
    assert (
        again.get_tags()["quality"] == "fantastic"
        and again.get_metrics()["score"] == 3
        and "outputs/notes.txt" in again.get_file_names()
    )
    assert [r.id for r in experiment.get_runs(tags={"quality": "fantastic"})] == [run.id] and list(
        run.get_children()
    ) == []
    assert [e.name for e in Experiment.list(ws)] == ["sequence"]
    with pytest.raises(UserErrorException, match="the server has no registry yet"):
        run.register_model(model_name="m", model_path="outputs/model.txt")
    with pytest.raises(UserErrorException, match="Dataset.get_by_name is not in hora-azureml"):
        Dataset.get_by_name(ws, "x")
    cluster.delete()


def test_a_notebook_logs_by_itself(here: Path) -> None:
    """start_logging, with blocks, child runs, queries by tags and properties: as the notebooks about runs and
    logging."""
    from azureml.core import Experiment, Run, ScriptRunConfig, Workspace
    from azureml.core.run import _OfflineRun
    from azureml.exceptions import UserErrorException

    experiment = Experiment(workspace=Workspace.from_config(), name="explore-runs")
    run = experiment.start_logging()
    run.log(name="message", value="Hello from run!")
    for i in range(3):
        run.log("loss", 1 / (i + 1))
    assert run.get_status() == "Running" and "explore-runs" in repr(run)
    run.upload_file("outputs/this.py", __file__)
    run.add_properties({"author": "me"})
    with pytest.raises(UserErrorException, match="properties stay as they are"):
        run.add_properties({"author": "you"})
    run.tag("quality", "great run")
    run.tag("worth another look")
    run.complete()
    assert run.get_status() == "Completed" and run.wait_for_completion()["status"] == "Completed"
    assert (
        run.get_metrics() == {"message": "Hello from run!", "loss": [1.0, 0.5, 1 / 3]}
        and "outputs/this.py" in run.get_file_names()
    )
    assert run.get_tags() == {"quality": "great run", "worth another look": None}
    assert [r.id for r in experiment.get_runs(properties={"author": "me"}, tags="worth another look")] == [run.id]
    with experiment.start_logging() as parent:
        for count in range(2):
            with parent.child_run() as child:
                child.log(name="Hello from child run", value=count)
        assert parent.get_status() == "Running"
    assert (
        sorted(c.get_metrics()["Hello from child run"] for c in parent.get_children()) == [0, 1]
        and parent.get_status() == "Completed"
    )
    with pytest.raises(ZeroDivisionError), experiment.start_logging() as broken:
        _ = 1 / 0
    assert broken.get_status() == "Failed" and "ZeroDivisionError" in broken.get_details()["error"]["error"]["message"]
    os.makedirs("src")
    Path("src/sleep.py").write_text("import time; time.sleep(600)")
    script = experiment.submit(ScriptRunConfig("src", "sleep.py"))
    script.fail()
    assert script.get_status() == "Failed" and script.wait_for_completion(raise_on_error=False)["status"] == "Failed"
    assert type(Run.get_context()) is _OfflineRun


DISTRIBUTED = """
import argparse, os
import torch, torch.distributed as dist
from azureml.core.run import Run

parser = argparse.ArgumentParser()
parser.add_argument("--dist-backend")
parser.add_argument("--dist-url")
parser.add_argument("--rank", type=int)
parser.add_argument("--world-size", type=int)
args = parser.parse_args()
assert args.dist_url.startswith("tcp://") and os.environ["AZ_BATCH_MASTER_NODE"] in args.dist_url
dist.init_process_group(args.dist_backend, init_method=args.dist_url, rank=args.rank, world_size=args.world_size)
x = torch.tensor([args.rank + 1.0])
dist.all_reduce(x)
Run.get_context().log("sum", x.item())
dist.destroy_process_group()
"""


def test_torch_by_the_variables_of_the_sdk(here: Path) -> None:
    """PyTorch(distributed_training=Gloo()) with its variables in script_params, as the notebook for NCCL and gloo has
    them."""
    from azureml.core import Experiment, Workspace
    from azureml.train.dnn import Gloo, PyTorch
    from azureml.widgets import RunDetails

    os.makedirs("pytorch-distr")
    Path("pytorch-distr/mnist.py").write_text(DISTRIBUTED)
    params = {
        "--dist-backend": "gloo",
        "--dist-url": "$AZ_BATCHAI_PYTORCH_INIT_METHOD",
        "--rank": "$AZ_BATCHAI_TASK_INDEX",
        "--world-size": 2,
    }
    estimator = PyTorch(
        source_directory="./pytorch-distr", script_params=params, compute_target="gpu-cluster", entry_script="mnist.py",
        node_count=2,
        distributed_training=Gloo(), use_docker=False,
    )  # fmt: skip
    run = Experiment(Workspace.from_config(), name="pytorch-distr").submit(estimator)
    assert str(run).startswith("Run(Experiment: pytorch-distr,\nId: pytorch-distr_")
    RunDetails(run).show()
    run.wait_for_completion(show_output=True)
    assert run.get_metrics() == {"sum": [3.0, 3.0]}


def test_a_compute_target_is_a_pool(here: Path) -> None:
    """AmlCompute makes a pool with its bounds; a run takes whole nodes of it, also where it has none now."""
    from azureml.core import Experiment, ScriptRunConfig, Workspace
    from azureml.core.compute import AmlCompute, ComputeTarget
    from azureml.core.runconfig import MpiConfiguration
    from azureml.exceptions import ComputeTargetException

    ws = Workspace.from_config()
    asked = AmlCompute.provisioning_configuration(
        vm_size="Standard_D2_v2", min_nodes=1, max_nodes=2, idle_seconds_before_scaledown=60
    )
    cluster = ComputeTarget.create(ws, "Two-nodes", asked)
    pool = next(p for p in ws.client.pools() if p["name"] == "two-nodes")
    assert (pool["provider"], pool["min"], pool["max"], pool["idle"], pool["node"]["cores"]) == ("local", 1, 2, 60, 2)
    cluster.wait_for_completion(show_output=True, min_node_count=None, timeout_in_minutes=1)
    assert cluster.get_status().current_node_count >= 1

    os.makedirs("src", exist_ok=True)
    Path("src/where.sh").write_text('echo "rank $HORA_RANK of $HORA_SIZE on $HORA_CROSS_RANK of $HORA_CROSS_SIZE"\n')
    experiment = Experiment(ws, "where")
    jobs = []
    for nodes in (2, 1):
        shape = MpiConfiguration(process_count_per_node=1, node_count=nodes)
        src = ScriptRunConfig("src", "where.sh", compute_target=cluster, distributed_job_config=shape)
        run = experiment.submit(src)
        assert run.wait_for_completion(show_output=True)["status"] == "Completed"
        jobs.append(ws.client.job(run.number))
    lines = [line.text for line in ws.client.logs(jobs[0].id) if line.rank >= 0]
    assert sorted(lines) == ["rank 0 of 2 on 0 of 2", "rank 1 of 2 on 1 of 2"]
    for job, nodes in zip(jobs, (2, 1), strict=True):
        assert (job.document["pool"], job.document["nodes"], job.document["whole"]) == ("two-nodes", nodes, True)
    cluster.update(min_nodes=0, max_nodes=1)
    pool = next(p for p in ws.client.pools() if p["name"] == "two-nodes")
    assert (pool.get("min", 0), pool["max"]) == (0, 1)
    cluster.delete()
    assert "two-nodes" not in [p["name"] for p in ws.client.pools()]
    with pytest.raises(ComputeTargetException):
        ComputeTarget(ws, "Two-nodes")


def test_processes_share_out_the_gpus_of_their_node(here: Path, capfd: pytest.CaptureFixture) -> None:
    """A run takes whole nodes: also a ScriptRunConfig's processes see the GPUs of theirs, and cuda:LOCAL_RANK is one's
    own."""
    from azureml.core import Environment, Experiment, ScriptRunConfig, Workspace
    from azureml.core.compute import ComputeTarget
    from azureml.core.runconfig import MpiConfiguration
    from azureml.train.estimator import Estimator

    ws = Workspace.from_config()
    for name, gpus in (("four-gpus", 4), ("no-gpus", 0)):
        ws.client.add_pool(name, "local", max=1, idle=600.0, node={"cores": 4, "gpus": gpus})
    os.makedirs("src")
    Path("src/sees.py").write_text(
        "import os\nprint('sees', os.environ['LOCAL_RANK'], os.environ.get('CUDA_VISIBLE_DEVICES') or 'none')\n"
    )
    experiment = Experiment(ws, "gpus")

    def seen(config) -> str:
        """What the processes see, which is the same for all: each finds its own GPU at its place."""
        run = experiment.submit(config)
        assert run.wait_for_completion()["status"] == "Completed"
        lines = [line.text.split()[1:] for line in ws.client.logs(run.number) if line.text.startswith("sees")]
        assert sorted(int(place) for place, _ in lines) == list(range(len(lines)))
        (same,) = {gpus for _, gpus in lines}
        return same

    def script(pool: str, processes: int, **more) -> ScriptRunConfig:
        return ScriptRunConfig(
            "src", "sees.py", compute_target=ComputeTarget(ws, pool),
            distributed_job_config=MpiConfiguration(process_count_per_node=processes), **more,
        )  # fmt: skip

    def estimator(**more) -> Estimator:
        return Estimator("src", entry_script="sees.py", compute_target="four-gpus", **more)

    four = [set("0123")] * 2
    assert [set(seen(script("four-gpus", n)).split(",")) for n in (2, 4)] == four
    assert seen(ScriptRunConfig("src", "sees.py", compute_target=ComputeTarget(ws, "four-gpus"))) == "0,1,2,3"
    assert len(seen(script("four-gpus", 3)).split(",")) == 3
    assert "the 4 GPUs of a node do not divide by 3 processes: each gets 1, and 1 is not used" in capfd.readouterr().err
    assert set(seen(estimator(use_gpu=True, process_count_per_node=2)).split(",")) == four[0]
    assert seen(estimator()) == "none" == seen(script("no-gpus", 1))
    own = Environment("own")
    own.environment_variables = {"CUDA_VISIBLE_DEVICES": ""}
    assert seen(script("four-gpus", 1, environment=own)) == "none"
    for name in ("four-gpus", "no-gpus"):
        ws.client.remove_pool(name)


def test_the_variables_of_mpi(here: Path) -> None:
    """Two processes of a running Mpi job find each other as those of Open MPI do."""
    from azureml.core import Experiment, ScriptRunConfig, Workspace
    from azureml.core.runconfig import MpiConfiguration

    os.makedirs("src")
    Path("src/says.py").write_text(
        "import os\n"
        "print('mpi', *(f\"{k[16:]}={v}\" for k, v in sorted(os.environ.items()) if k.startswith('OMPI_COMM_WORLD_')))\n"
    )
    ws = Workspace.from_config()
    config = ScriptRunConfig("src", "says.py", distributed_job_config=MpiConfiguration(process_count_per_node=2))
    run = Experiment(ws, "mpi").submit(config)
    assert run.wait_for_completion()["status"] == "Completed"
    said = sorted(line.text for line in ws.client.logs(run.number) if line.text.startswith("mpi"))
    assert said == [f"mpi LOCAL_RANK={r} LOCAL_SIZE=2 NODE_RANK={r} RANK={r} SIZE=2" for r in (0, 1)]


def test_numbers_from_outside_are_the_runs(site, here: Path) -> None:
    """What start_logging's run logs is in the server's metrics with its steps: hora metrics, pages and compare have
    it."""
    from azureml.core import Experiment, Workspace

    experiment = Experiment(Workspace.from_config(), "outside")
    runs = [experiment.start_logging() for _ in range(2)]
    for scale, run in enumerate(runs, 1):
        for step in (0, 10, 20):
            run.log("loss", scale / (step + 1), step=step)
        run.log("acc", 0.5)
        run.log("acc", float("inf"))
        run.log("note", "text")
        run.complete()
    run.log("late", 1)
    metrics = json.loads(site.hora("metrics", str(run.number), "--json", cwd=here))
    assert [(m["name"], m["rank"], m["count"]) for m in metrics] == [("acc", 0, 2), ("late", 0, 1), ("loss", 0, 3)]
    found = {m.name: m for m in run._client.metrics(run.number)}
    assert [(s, v) for s, _, v in found["loss"].points] == [(0, 2.0), (10, 2 / 11), (20, 2 / 21)]
    assert found["acc"].last == float("inf") and found["acc"].points[0][0] == 0
    assert run.get_metrics()["loss"] == [2.0, 2 / 11, 2 / 21] and run.get_metrics()["note"] == "text"
    assert "loss" in site.hora("compare", *(str(r.number) for r in runs), cwd=here)


def test_what_changes_nothing_is_said(here: Path, capfd: pytest.CaptureFixture) -> None:
    """An unknown size, a pool that somebody else has made: a sentence each, and the pool stays as it is."""
    from azureml.core import Experiment, Workspace
    from azureml.core.compute import AmlCompute, ComputeTarget

    ws = Workspace.from_config()
    made = ComputeTarget.create(ws, "odd", AmlCompute.provisioning_configuration("Standard_X9", max_nodes=1))
    assert "vm_size Standard_X9 is no size that is known here: each node has its share" in capfd.readouterr().err
    with pytest.raises(TypeError, match="AmlCompute.update has no argument max_node: did you mean max_nodes"):
        made.update(max_node=2)
    made.delete()
    ws.client.add_pool("theirs", "local", max=1, node={"cores": 1})
    theirs = ComputeTarget(ws, "theirs")
    theirs.update(max_nodes=3)
    said = capfd.readouterr().err
    assert "theirs is the server's pool theirs, which no ComputeTarget.create of yours has made here" in said, said
    assert "an administrator changes that with hora pool add theirs" in said, said
    theirs.delete()
    assert "with hora pool remove theirs" in capfd.readouterr().err
    assert [p.get("max") for p in ws.client.pools() if p["name"] == "theirs"] == [1]
    ws.client.remove_pool("theirs")
    with pytest.raises(TypeError, match="Experiment.start_logging has no argument output: did you mean outputs"):
        Experiment(ws, "said").start_logging(output=None)
    with pytest.raises(TypeError, match="Experiment has no argument nmae: did you mean name"):
        Experiment(ws, "said", nmae="x")
    assert Experiment(ws, "said", _id="x").name == "said"


def test_a_pool_of_another_project(here: Path) -> None:
    """It is no compute target in lists, and takes no run; for whose jobs a target's pool is stays when that is changed."""
    from azureml.core import Experiment, ScriptRunConfig, Workspace
    from azureml.core.compute import AmlCompute, ComputeTarget
    from azureml.exceptions import ExperimentExecutionException

    ws = Workspace.from_config()
    ws.client.add_pool("eyes", projects=["vision"])
    asked = AmlCompute.provisioning_configuration(vm_size="Standard_D2_v2", max_nodes=1)
    ours = ComputeTarget.create(ws, "ours", asked)
    names = [target.name for target in ComputeTarget.list(ws)]
    assert "eyes" not in names and "ours" in names
    script = ScriptRunConfig(source_directory=".", command=["true"], compute_target="eyes")
    with pytest.raises(
        ExperimentExecutionException,
        match="pool eyes is for jobs of project vision alone, and this one is of project books",
    ):
        Experiment(ws, "where").submit(script)

    pool = next(p for p in ws.client.pools() if p["name"] == "ours")
    size, bounds = pool["node"], {"max": 1, "projects": ["books", "vision"]}
    ws.client.add_pool("ours", "local", node=size, **bounds)
    ours.update(max_nodes=2)
    pool = next(p for p in ws.client.pools() if p["name"] == "ours")
    assert (pool["max"], pool["projects"]) == (2, ["books", "vision"])
    ours.delete()
    ws.client.remove_pool("eyes")


def test_a_run_whose_node_is_made(site, here: Path) -> None:
    """It is Provisioning while the pool makes a node for it, and Queued where a pool waits for one that comes by
    itself."""
    import time

    from azureml.core import Experiment, ScriptRunConfig, Workspace

    (here / "train.py").write_text("")
    added = ("pool", "add", "cloud", "--provider", "command", "--max", "1", "--node", "cores=1")
    site.hora(*added, "--create", "true", "--delete", "true", cwd=here)  # it never comes
    site.hora("pool", "add", "bare", cwd=here)
    experiment = Experiment(Workspace.from_config(), "made")
    runs = {
        pool: experiment.submit(ScriptRunConfig(source_directory=str(here), script="train.py", compute_target=pool))
        for pool in ("cloud", "bare")
    }
    until = time.monotonic() + PATIENCE
    while runs["cloud"].get_status() != "Provisioning":
        assert time.monotonic() < until, runs["cloud"].get_details()
    assert runs["bare"].get_status() == "Queued" and runs["bare"].get_details()["reason"]["code"] == "nodes"
    for run in runs.values():
        run.cancel()
        assert run.get_status() == "Canceled"
    site.hora("pool", "remove", "cloud", cwd=here)
    site.hora("pool", "remove", "bare", cwd=here)


def test_failing_waiting_and_cancelling(here: Path) -> None:
    from azureml.core import Experiment, ScriptRunConfig, Workspace
    from azureml.exceptions import ActivityFailedException
    from azureml.train.dnn import TensorFlow

    ws = Workspace.from_config()
    experiment = Experiment(ws, "ends")
    os.makedirs("src")
    Path("src/bad.py").write_text("import sys; print('it is bad'); sys.exit(3)")
    Path("src/says.py").write_text("from azureml.core import Run; Run.get_context().fail('not good enough')")
    Path("src/sleep.py").write_text("import time; time.sleep(600)")
    bad = experiment.submit(ScriptRunConfig("src", "bad.py"))
    with pytest.raises(ActivityFailedException, match="has failed with exit code 3"):
        bad.wait_for_completion()
    assert (
        bad.wait_for_completion(raise_on_error=False)["status"] == "Failed"
        and bad.get_details()["error"]["error"]["exitCode"] == 3
    )
    says = experiment.submit(ScriptRunConfig("src", "says.py"))
    assert says.wait_for_completion(raise_on_error=False)["error"]["error"]["message"] == "not good enough"
    with pytest.warns(UserWarning, match="process_count_pernode is taken as process_count_per_node"):
        long = experiment.submit(
            TensorFlow(
                "src", entry_script="sleep.py", user_managed=True, process_count_pernode=2, distributed_backend="mpi"
            )
        )
    assert long.get_details()["runDefinition"]["target"] == "default"
    gpu = experiment.submit(TensorFlow("src", entry_script="sleep.py", user_managed=True, use_gpu=True))
    assert gpu.get_status() == "Queued" and "GPU" in gpu.get_details()["warnings"][0]["message"], gpu.get_details()
    assert gpu.get_details()["reason"]["code"] == "never"
    for run in (long, gpu):
        run.cancel()
        assert run.wait_for_completion()["status"] == "Canceled"
    assert [r.get_status() for r in experiment.get_runs()] == ["Canceled", "Canceled", "Failed", "Failed"]
    assert [r.id for r in experiment.get_runs(status="Failed")] == [says.id, bad.id]
    parent = experiment.submit(ScriptRunConfig("src", command=["true"]))
    child = parent.submit_child(ScriptRunConfig("src", command="echo hello"))
    child.wait_for_completion()
    assert [r.id for r in parent.get_children()] == [child.id] and child.parent.id == parent.id
    assert parent.id in [r.id for r in experiment.get_runs()] and child.id not in [r.id for r in experiment.get_runs()]


READS = """
import os, sys, time
from azureml.core import Run

run = Run.get_context()
by_argument, by_variable = sys.argv[2], os.environ["AZUREML_DATAREFERENCE_numbers"]
for folder in (by_argument, by_variable):
    assert open(os.path.join(folder, "one.txt")).read() == "1", folder
assert not os.path.exists(os.path.join(os.path.dirname(by_argument), "other"))
os.makedirs("made/below")
for name in ("a", "below/b"):
    open(f"made/{name}.txt", "w").write(name)
run.upload_folder(name="checkpoints", path="made")
run.set_tags({"stage": "read", "try": 1})
run.log("read", 2)
run.flush(timeout_seconds=10)
"""


def test_runs_that_are_found_again(here: Path, capsys: pytest.CaptureFixture) -> None:
    """A workspace that is written down and read, files of the datastore as inputs, folders of files, runs by their ids
    and in lists."""
    from azureml.core import Datastore, Environment, Experiment, Run, Workspace
    from azureml.core.conda_dependencies import CondaDependencies
    from azureml.exceptions import UserErrorException
    from azureml.train.estimator import Estimator

    ws = Workspace.get("papers", subscription_id="s", resource_group="g")
    ws.write_config(path="elsewhere", file_name="papers.json")
    again = Workspace.from_config(path="elsewhere", _file_name="papers.json")
    assert (again.name, again.subscription_id, again.resource_group) == ("papers", "s", "g")
    Workspace.create("magazines").write_config()
    assert Workspace.from_config().name == "magazines"

    os.makedirs("data/below")
    for name in ("one", "below/two"):
        Path(f"data/{name}.txt").write_text("1")
    store = Datastore.get(ws, "workspaceblobstore")
    store.upload_files(["data/one.txt", "data/below/two.txt"], relative_root="data", target_path="numbers")
    store.upload_files(["data/one.txt"], target_path="other", show_progress=False)
    assert "Uploaded data/below/two.txt to numbers/below/two.txt" in capsys.readouterr().out
    assert store.download("got", prefix="numbers", show_progress=False) == 2
    assert sorted(p.relative_to("got").as_posix() for p in Path("got").rglob("*.txt")) == [
        "numbers/below/two.txt",
        "numbers/one.txt",
    ]
    Path("data/one.txt").write_text("2")
    store.upload_files(["data/one.txt"], target_path="numbers")  # which is there
    assert (store.folder / "numbers/one.txt").read_text() == "1"
    with pytest.raises(UserErrorException, match="leads out of the datastore"):
        store.upload_files(["data/one.txt"], target_path="../..")

    environment = Environment("small").clone("small-too")
    needs = CondaDependencies()
    needs.add_conda_package("numpy")
    needs.add_pip_package("azureml-defaults")
    environment.python.conda_dependencies = needs
    assert environment.name == "small-too" and "numpy" in needs.serialize_to_string()

    os.makedirs("src")
    Path("src/reads.py").write_text(READS)
    Path("src/sleep.py").write_text("import time; time.sleep(600)")
    experiment = Experiment(ws, "found")
    numbers = store.path("numbers").as_download()
    reads = experiment.submit(
        Estimator(
            "src", entry_script="reads.py", script_params={"--data": numbers}, inputs=[numbers],
            environment_definition=environment, max_run_duration_seconds=300,
        )
    )  # fmt: skip
    late = experiment.submit(Estimator("src", entry_script="sleep.py", max_run_duration_seconds=1))
    assert reads.wait_for_completion()["status"] == "Completed"
    assert late.wait_for_completion(raise_on_error=False)["status"] == "Failed"
    assert "its time limit of 1s" in late.get_details()["error"]["error"]["message"]
    names = reads.get_file_names()
    assert "checkpoints/a.txt" in names and "checkpoints/below/b.txt" in names, names
    reads.download_files(prefix="checkpoints", output_directory="fetched", append_prefix=False)
    assert Path("fetched/below/b.txt").read_text() == "below/b"

    with experiment.start_logging() as parent:
        children = parent.create_children(tag_key="fold", tag_values=["a", "b"])
        children += parent.create_children(count=2, tag_key="fold", tag_values=["c", "d"])
        children += parent.create_children(count=1)
        for i, child in enumerate(children):
            child.log("score" if i else "best", i)
            child.complete()
    assert [c.get_tags().get("fold") for c in children] == ["a", "b", "c", "d", None]
    with pytest.raises(UserErrorException, match="count is 3, and tag_values has 1"):
        parent.create_children(count=3, tag_key="fold", tag_values=["a"])
    below = parent.get_metrics(recursive=True)
    assert below["best"] == 0 and below["score"] in (1, 2, 3, 4) and parent.get_metrics() == {}
    parent.set_tags({"stage": "compared", "note": None})
    assert parent.get_tags() == {"stage": "compared", "note": None}
    assert parent.remove_tags(["note"]) == {"stage": "compared"}

    found = Run.get(ws, reads.id)
    assert (found.id, found.experiment.name, found.get_status()) == (reads.id, "found", "Completed")
    assert found.get_tags() == {"stage": "read", "try": "1"} and found.get_metrics() == {"read": 2}
    assert "azureml-logs/70_driver_log_0.txt" in found.get_details_with_logs()["logFiles"]
    with pytest.raises(UserErrorException, match="run found_99999"):
        Run.get(ws, "found_99999")
    assert [r.id for r in Run.list(experiment)] == [parent.id, late.id, reads.id]
    assert [r.id for r in Run.list(experiment, tags={"stage": "read"})] == [reads.id]
    assert [r.id for r in Run.list(experiment, status="Failed")] == [late.id]
    assert len(list(Run.list(experiment, include_children=True))) == 8


def test_example(site, here: Path) -> None:
    """examples/71-azureml as it stands, without a config.json."""
    folder = here / "example"
    shutil.copytree(ROOT / "examples/71-azureml", folder)
    (here / ".azureml/config.json").unlink()
    done = subprocess.run(
        [sys.executable, "submit.py"], cwd=folder, env=site.env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for said in (
        "Creating a new compute target...",
        "the line is 3.0 -1.0",
        "losses: 80 last: 0.0",
        "line: {'slope': 3.0, 'offset': -1.0}",
        "files: ['outputs/line.pt']",
    ):
        assert said in done.stdout, (said, done.stdout, done.stderr)
    assert (folder / "line.pt").exists()
    assert "the workspace is default" in done.stderr, done.stderr
    assert (
        "torch 1.13 was asked for: torch 2."
        in site.hora("logs", done.stdout.split("line-through-points_")[1].split(",")[0], cwd=here) + done.stdout
    )
