"""A script for Azure Machine Learning's first SDK, on a server of hora. Nothing in it knows of hora.

    hora up                                                     # in another terminal
    pip install pyyaml torch cloudpickle psutil                 # what hora's wheels and this script need
    pip install --no-index --find-links dist hora hora-compat hora-azureml
    cd examples/71-azureml && python submit.py

It asks for a cluster, hands over a Horovod script for two processes, waits for it, and reads what it has logged and
kept.
"""

import azureml.core
from azureml.core import Experiment, Workspace
from azureml.core.compute import AmlCompute, ComputeTarget
from azureml.core.compute_target import ComputeTargetException
from azureml.train.dnn import Mpi, PyTorch
from azureml.widgets import RunDetails

print("SDK version:", azureml.core.VERSION)
ws = Workspace.from_config()
print("Workspace:", ws.name, ws.location, sep="\t")

cluster_name = "cpu-cluster"
try:
    compute_target = ComputeTarget(workspace=ws, name=cluster_name)
    print("Found existing compute target.")
except ComputeTargetException:
    print("Creating a new compute target...")
    compute_config = AmlCompute.provisioning_configuration(vm_size="STANDARD_D2_V2", max_nodes=4)
    compute_target = ComputeTarget.create(ws, cluster_name, compute_config)
    compute_target.wait_for_completion(show_output=True)
print(compute_target.get_status().serialize())

experiment = Experiment(ws, name="line-through-points")
estimator = PyTorch(
    source_directory="src",
    entry_script="train.py",
    script_params={"--lr": 0.5, "--epochs": 40, "--quiet": ""},
    compute_target=compute_target,
    process_count_per_node=2,
    distributed_training=Mpi(),
    framework_version="1.13",
    use_gpu=False,
)
run = experiment.submit(estimator, tags={"purpose": "example"})
print(run)
RunDetails(run).show()
run.wait_for_completion(show_output=True)

metrics = run.get_metrics()
print("losses:", len(metrics["loss"]), "last:", min(metrics["loss"][-2:]))
print("line:", metrics["line"])
print("files:", [name for name in run.get_file_names() if name.startswith("outputs/")])
run.download_file("outputs/line.pt", "line.pt")
