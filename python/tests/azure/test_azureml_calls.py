"""What Azure Machine Learning's names take and refuse, without a job."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest


def plan(config):
    from azureml.core._plan import plan_of

    return plan_of(config)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text("")
    return str(tmp_path)


def test_processes_of_each_description(folder: str) -> None:
    from azureml.core import RunConfiguration, ScriptRunConfig
    from azureml.core.runconfig import MpiConfiguration, PyTorchConfiguration
    from azureml.exceptions import RunConfigurationException, TrainingException
    from azureml.train.dnn import Gloo, Mpi, Nccl, PyTorch, TensorFlow
    from azureml.train.estimator import Estimator
    from azureml.train.sklearn import SKLearn

    def of(config) -> tuple[int, int, bool]:
        made = plan(config)
        return made.nodes, made.per_node, made.mpi

    script = {"source_directory": folder, "entry_script": "train.py"}
    assert of(Estimator(**script)) == (1, 1, True)
    assert of(
        TensorFlow(**script, node_count=2, process_count_per_node=3, distributed_training=MpiConfiguration())
    ) == (2, 3, True)
    assert of(TensorFlow(**script, node_count=2, distributed_training=Mpi(process_count_per_node=4))) == (2, 4, True)
    assert of(PyTorch(**script, node_count=2, distributed_backend="nccl")) == (2, 1, False)
    assert (
        of(PyTorch(**script, node_count=3, distributed_training=Gloo()))
        == (3, 1, False)
        == of(PyTorch(**script, node_count=3, distributed_training=Nccl()))
    )
    assert of(SKLearn(**script)) == (1, 1, True)
    src = {"source_directory": folder, "script": "train.py"}
    assert of(ScriptRunConfig(**src)) == (1, 1, False)
    assert of(ScriptRunConfig(**src, distributed_job_config=MpiConfiguration(2, 3))) == (3, 2, True)
    assert of(ScriptRunConfig(**src, distributed_job_config=PyTorchConfiguration(process_count=8, node_count=2))) == (
        2,
        4,
        False,
    )
    old = RunConfiguration(communicator="OpenMpi")
    old.mpi.process_count_per_node, old.node_count = 2, 2
    assert of(ScriptRunConfig(**src, run_config=old)) == (2, 2, True)
    with pytest.raises(RunConfigurationException, match="process_count 3 is no multiple of node_count 2"):
        plan(ScriptRunConfig(**src, distributed_job_config=PyTorchConfiguration(process_count=3, node_count=2)))
    for wrong in (lambda: MpiConfiguration(node_count=0), lambda: PyTorchConfiguration(process_count=0)):
        with pytest.raises(RunConfigurationException, match="count 0: give a whole number from 1"):
            wrong()
    late = MpiConfiguration()
    late.node_count = 0
    with pytest.raises(RunConfigurationException, match="node_count 0: give a whole number from 1"):
        plan(ScriptRunConfig(**src, distributed_job_config=late))
    with pytest.raises(TrainingException, match="write Gloo"):
        PyTorch(**script, distributed_training=Gloo)
    with pytest.raises(TrainingException, match="node_count 0"):
        PyTorch(**script, node_count=0)


def test_words_of_a_script(folder: str) -> None:
    from azureml.core import ScriptRunConfig
    from azureml.core._submit import _word
    from azureml.train.estimator import Estimator

    made = plan(
        Estimator(
            folder, entry_script="train.py", script_params={"--lr": 0.1, "--flag": "", "--many": [1, 2], "--n": 0}
        )
    )
    assert made.command == ["python", "train.py", "--lr", 0.1, "--flag", "--many", 1, 2, "--n", 0]
    assert plan(ScriptRunConfig(folder, "train.py", arguments="--a 'b c'")).command == [
        "python",
        "train.py",
        "--a",
        "b c",
    ]
    assert plan(ScriptRunConfig(folder, command="bash -c 'echo hi'")).command == ["bash", "-c", "echo hi"]
    assert plan(ScriptRunConfig(folder, command=["bash", "-c", "echo hi"])).command == ["bash", "-c", "echo hi"]
    pieces = ["python -m launch --node_rank $NODE_RANK train.py --data", 7, "--epochs 25"]
    assert plan(ScriptRunConfig(folder, command=pieces)).command == [
        "python", "-m", "launch", "--node_rank", "$NODE_RANK", "train.py", "--data", 7, "--epochs", "25",
    ]  # fmt: skip
    assert (
        _word("$AZ_BATCHAI_TASK_INDEX") == '"${AZ_BATCHAI_TASK_INDEX}"'
        and _word("x'; rm $HOME") == "'x'\"'\"'; rm $HOME'"
    )
    assert _word("tcp://${MASTER_ADDR}:$MASTER_PORT") == 'tcp://"${MASTER_ADDR}":"${MASTER_PORT}"'


def test_refused_by_name(folder: str) -> None:
    from azureml.core import Model, ScriptRunConfig
    from azureml.core.runconfig import TensorflowConfiguration
    from azureml.exceptions import UserErrorException
    from azureml.train.dnn import Chainer, ParameterServer, TensorFlow

    script = {"source_directory": folder, "entry_script": "train.py"}
    with pytest.raises(
        UserErrorException,
        match=r"ParameterServer\(worker_count=2, parameter_server_count=1\)\) is not in hora-azureml: parameter servers",
    ):
        TensorFlow(**script, node_count=2, worker_count=2, distributed_training=ParameterServer())
    with pytest.raises(UserErrorException, match="ParameterServer"):
        TensorFlow(**script, distributed_backend="ps")
    with pytest.raises(UserErrorException, match="TensorflowConfiguration"):
        plan(ScriptRunConfig(folder, "train.py", distributed_job_config=TensorflowConfiguration(2, 0)))
    with pytest.raises(UserErrorException, match="Chainer is not in hora-azureml"):
        Chainer(folder)
    with pytest.raises(UserErrorException, match="Model.deploy is not in hora-azureml: models are not served"):
        Model.deploy()
    with pytest.raises(ImportError, match="azureml.train.hyperdrive.HyperDriveConfig is not in hora-azureml"):
        from azureml.train.hyperdrive import HyperDriveConfig  # noqa: F401
    with pytest.raises(ImportError, match="azureml.core.compute.AksCompute is not in hora-azureml"):
        from azureml.core.compute import AksCompute  # noqa: F401
    with pytest.raises(TypeError, match="TensorFlow has no argument pip_pakages: did you mean pip_packages?"):
        TensorFlow(**script, pip_pakages=["x"])
    with pytest.raises(UserErrorException, match="the script nothing.py is not in"):
        TensorFlow(folder, entry_script="nothing.py")


@pytest.mark.parametrize(
    ("words", "name", "use"),
    [
        (
            "from azureml.pipeline.core import Pipeline",
            "azureml.pipeline",
            "submit the steps as runs, one after another",
        ),
        ("import azureml.contrib.mir", "azureml.contrib", "previews have no counterpart"),
        ("from azureml.core import Keyvault", "azureml.core.Keyvault", "hora secret set NAME"),
        ("from azureml.core.keyvault import Keyvault", "azureml.core.keyvault", "hora secret set NAME"),
        (
            "from azureml.train.hyperdrive.runconfig import X",
            "azureml.train.hyperdrive.runconfig",
            "does not search yet",
        ),
        ("from azureml.train.dnn import Pytorch", "azureml.train.dnn.Pytorch", "did you mean PyTorch"),
        ("from azureml.core.runconfig import Mpi", "azureml.core.runconfig.Mpi", "docs/azureml.md lists"),
        ("import azureml.something", "azureml.something", "docs/azureml.md lists"),
        ("from azureml import opendatasets", "azureml.opendatasets", "fetch the data set"),
    ],
)
def test_what_is_absent_is_refused_by_name(words: str, name: str, use: str) -> None:
    """Modules and names of the SDK that are not here: one sentence, with what to use."""
    import azureml.core
    import azureml.train.dnn

    with pytest.raises(ImportError) as refused:
        exec(words)
    assert str(refused.value).startswith(f"{name} is not in hora-azureml: ") and use in str(refused.value)
    assert importlib.import_module("azureml.core.conda_dependencies") is azureml.core.conda_dependencies
    assert not hasattr(azureml.core, "_repr_html_")


def test_whoever_asks_all_modules_for_a_name_is_answered() -> None:
    """hasattr, and pickle, which looks in every module for an object that does not say whence it is."""
    import pickle

    import azureml.core

    class Odd:
        __module__ = None
        __qualname__ = "of_no_module"

    assert not hasattr(azureml.core, "Keyvault") and not hasattr(azureml, "pipeline")
    with pytest.raises(AttributeError, match="azureml.core.Keyvault is not in hora-azureml: keep a value with"):
        azureml.core.Keyvault  # noqa: B018
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(Odd)


def test_what_changes_nothing_is_said_once(folder: str, capsys: pytest.CaptureFixture) -> None:
    from azureml.core import Model, ScriptRunConfig
    from azureml.core.runconfig import DockerConfiguration
    from azureml.exceptions import UserErrorException
    from azureml.train.dnn import TensorFlow

    for _ in range(2):
        made = ScriptRunConfig(folder, "train.py", docker_runtime_config=DockerConfiguration(use_docker=True))
        assert plan(made).per_node == 1
        TensorFlow(folder, entry_script="train.py", worker_count=4)
    said = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1].strip() for line in said] == ["ScriptRunConfig", "TensorFlow"], said
    assert "docker_runtime_config change nothing here" in said[0]
    assert "worker_count change nothing without parameter servers" in said[1]
    for name in ("download", "register", "get_model_path"):
        with pytest.raises(UserErrorException, match=f"Model.{name} is not in hora-azureml"):
            getattr(Model, name)(target_dir=".")


def test_pages_of_a_server_with_its_own_authority() -> None:
    """The fingerprint behind the server's address is for programs: a browser's address has none."""
    from azureml.core import Experiment, Run, Workspace

    from hora.server import Client, Job

    ws = Workspace(workspace_name="books")
    ws._client = Client("https://lab:8470#" + "ab" * 32, "token")
    experiment = Experiment(ws, "pages")
    run = Run(experiment, job=Job(3, "finished", 0, "", "", {}, {}))
    assert run.get_portal_url() == "https://lab:8470/jobs/3"
    assert experiment.get_portal_url() == experiment.get_docs_url() == "https://lab:8470"


def test_packages_of_each_description(folder: str, tmp_path: Path) -> None:
    from azureml.core import Environment
    from azureml.core.conda_dependencies import CondaDependencies
    from azureml.train.dnn import TensorFlow

    (tmp_path / "more.txt").write_text("pandas  # tables\n")
    (tmp_path / "pip.txt").write_text("-r more.txt\n--extra-index-url https://example.org/simple\nscipy>=1\n")
    (tmp_path / "conda.yml").write_text(
        "channels: [c]\ndependencies: [python=3.6.2, scikit-learn=0.20, pip, {pip: [azureml-defaults, keras]}]\n"
    )
    estimator = TensorFlow(
        folder, entry_script="train.py", pip_packages=["horovod"], conda_packages=["numpy"],
        conda_dependencies_file="conda.yml",
        pip_requirements_file="pip.txt", framework_version="1.13", environment_variables={"A": 1},
    )  # fmt: skip
    made = plan(estimator)
    asked, _ = made.environment._needs()
    assert (
        asked["conda"] == ["scikit-learn=0.20", "numpy"] and asked["python"] == "3.6.2" and asked["channels"] == ["c"]
    )
    assert asked["pip"] == [
        "azureml-defaults",
        "keras",
        "pandas",
        "--extra-index-url https://example.org/simple",
        "scipy>=1",
        "horovod",
    ]
    assert made.nearest == ["tensorflow==1.13"] and made.variables == {"A": "1"}
    kept = CondaDependencies(
        _underlying_structure=__import__("yaml").safe_load(estimator.conda_dependencies.serialize_to_string())
    )
    assert kept.pip_packages == estimator.conda_dependencies.pip_packages and kept.python_version == "3.6.2"
    assert Environment.from_pip_requirements("e", str(tmp_path / "pip.txt"))._needs()[0]["pip"][0] == "pandas"
    assert Environment.from_conda_specification("e", str(tmp_path / "conda.yml"))._needs()[0]["conda"] == [
        "scikit-learn=0.20"
    ]
    assert Environment("empty")._needs() == ({"nearest": [], "pip": [], "conda": [], "channels": []}, {})


def test_a_script_by_itself(capsys: pytest.CaptureFixture) -> None:
    """Outside a server a run prints, and has no experiment."""
    from azureml.core import Run
    from azureml.exceptions import RunEnvironmentException

    run = Run.get_context()
    run.log("loss", 0.5)
    run.log_row("row", x=1)
    run.tag("a", "b")
    run.complete()
    assert run.id.startswith("OfflineRun") and not hasattr(run, "experiment") and run.get_tags() == {"a": "b"}
    assert capsys.readouterr().out.splitlines() == ["loss = 0.5", "row = {'x': 1}"]
    with pytest.raises(RunEnvironmentException):
        Run.get_context(allow_offline=False)


def test_beside_the_real_one(tmp_path: Path) -> None:
    """It refuses in one sentence where azureml-core is installed too."""
    info = tmp_path / "azureml_core-1.57.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: azureml-core\nVersion: 1.57.0\n")
    where = str(Path(__import__("azureml").__file__).parents[1])
    program = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {where!r}]; import azureml"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "azureml-core 1.57.0 is installed beside hora-azureml" in done.stderr, done.stderr
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("azureml-core")


def public_calls():
    """Each public class, method and function of the package, with its name and a way to call it that binds."""
    import inspect
    import pkgutil

    import azureml

    for found in pkgutil.walk_packages(azureml.__path__, "azureml."):
        if any(part.startswith("_") for part in found.name.split(".")):
            continue
        module = importlib.import_module(found.name)
        for name, thing in vars(module).items():
            if name.startswith("_") or not getattr(thing, "__module__", "").startswith("azureml"):
                continue
            if inspect.isfunction(thing) and thing.__module__ == found.name:
                yield name, thing
            if type(thing) is not type:  # or it is refused as a whole
                continue
            if thing.__init__ is not object.__init__ and not issubclass(thing, BaseException):
                yield thing.__name__, thing
            for method in (m for m in dir(thing) if not m.startswith("_")):
                static = inspect.getattr_static(thing, method)
                if isinstance(static, (staticmethod, classmethod)):
                    yield f"{thing.__name__}.{method}", getattr(thing, method)
                elif inspect.isfunction(static) and not issubclass(thing, (BaseException, dict)):
                    yield f"{thing.__name__}.{method}", getattr(object.__new__(thing), method)


def test_every_call_names_the_nearest_argument(folder: str) -> None:
    """An argument that a constructor, a method or a function does not have is refused with a sentence, everywhere."""
    import inspect

    from azureml.core import ScriptRunConfig

    with pytest.raises(TypeError, match=r"^ScriptRunConfig has no argument scrpt: did you mean script\?$"):
        ScriptRunConfig(source_directory=folder, scrpt="train.py")
    seen, wrong = set(), []
    for name, call in public_calls():
        kinds = inspect.signature(call).parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in kinds) and any(p.kind is p.VAR_POSITIONAL for p in kinds):
            continue  # it is refused as a whole
        if name.endswith(".log_row"):
            continue  # whose columns have any name
        needed = [p for p in kinds if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        try:
            call(*[None] * len(needed), nonsense_that_is_not=1)
            wrong.append(name)
        except Exception as e:
            if not isinstance(e, TypeError) or "has no argument nonsense_that_is_not" not in str(e):
                wrong.append(f"{name}: {e!r}")
        seen.add(name)
    assert not wrong, "\n".join(wrong)
    assert len(seen) > 100 and {"Run.log", "Experiment.submit", "Run.get_context", "PyTorch"} <= seen, sorted(seen)
