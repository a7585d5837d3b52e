"""What a model_fn needs of tf.estimator where TensorFlow has none any more (2.16 and later): the specification that it
returns."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["EstimatorSpec", "ModeKeys", "RunConfig", "export"]


class ModeKeys:
    """What model_fn is called for."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


class EstimatorSpec(NamedTuple):
    """What model_fn returns. Which fields have to be there depends on the mode."""

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, Any] | None = None
    export_outputs: Mapping[str, Any] | None = None
    training_chief_hooks: Sequence[Any] | None = None
    training_hooks: Sequence[Any] | None = None
    scaffold: Any = None
    evaluation_hooks: Sequence[Any] | None = None
    prediction_hooks: Sequence[Any] | None = None


class RunConfig:
    """What model_fn gets as config."""

    def __init__(
        self, model_dir: str | None = None, tf_random_seed: int | None = 1, save_summary_steps: int = 100,
        save_checkpoints_steps: int | None = None, save_checkpoints_secs: float | None = None,
        session_config: Any = None,
        keep_checkpoint_max: int = 5, log_step_count_steps: int = 100, is_chief: bool = True,
        num_worker_replicas: int = 1,
        global_id_in_cluster: int = 0, **_: Any,
    ) -> None:  # fmt: skip
        self.model_dir, self.tf_random_seed, self.save_summary_steps = model_dir, tf_random_seed, save_summary_steps
        self.save_checkpoints_steps, self.save_checkpoints_secs = save_checkpoints_steps, save_checkpoints_secs
        self.session_config, self.keep_checkpoint_max = session_config, keep_checkpoint_max
        self.log_step_count_steps, self.is_chief = log_step_count_steps, is_chief
        self.num_worker_replicas, self.global_id_in_cluster = num_worker_replicas, global_id_in_cluster
        self.task_type, self.task_id, self.master = "chief" if is_chief else "worker", global_id_in_cluster, ""


class _Output:
    def __init__(self, **outputs: Any) -> None:
        self.outputs = {k: v for k, v in outputs.items() if v is not None}


class PredictOutput(_Output):
    """Tensors by name, or one."""

    def __init__(self, outputs: Any) -> None:
        super().__init__(**(dict(outputs) if isinstance(outputs, Mapping) else {"output": outputs}))


class ClassificationOutput(_Output):
    """Scores, classes, or both."""

    def __init__(self, scores: Any = None, classes: Any = None) -> None:
        super().__init__(scores=scores, classes=classes)


class RegressionOutput(_Output):
    """Values."""

    def __init__(self, value: Any) -> None:
        super().__init__(outputs=value)


export = types.SimpleNamespace(
    PredictOutput=PredictOutput,
    ClassificationOutput=ClassificationOutput,
    RegressionOutput=RegressionOutput,
    ExportOutput=_Output,
)

_CANNED = (
    "DNNClassifier", "DNNRegressor", "DNNEstimator", "LinearClassifier", "LinearRegressor", "LinearEstimator",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedRegressor", "DNNLinearCombinedEstimator", "BaselineClassifier", "BaselineRegressor",
    "BaselineEstimator",
    "BoostedTreesClassifier", "BoostedTreesRegressor", "BoostedTreesEstimator", "Estimator", "Head", "BinaryClassHead",
    "MultiClassHead",
    "MultiLabelHead", "RegressionHead", "LogisticRegressionHead", "MultiHead", "PoissonRegressionHead",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    import tensorflow as tf

    if name in _CANNED:
        raise AttributeError(
            f"tf.estimator.{name} is not in TensorFlow {tf.__version__}, whose last release with tf.estimator is 2.15; write the layers, the "
            "loss and the optimizer in modelFn, or install tensorflow<2.16"
        )
    raise AttributeError(
        f"tf.estimator.{name}: here are EstimatorSpec, ModeKeys, RunConfig and export.*Output; install tensorflow<2.16 for more"
    )


def install() -> Any:
    """tf.estimator: TensorFlow's own where it has it, else this module, which programs then find by that name."""
    import sys

    import tensorflow as tf

    try:
        return tf.estimator
    except AttributeError:
        here = sys.modules[__name__]
        tf.estimator = here
        tf.compat.v1.estimator = here
        return here
