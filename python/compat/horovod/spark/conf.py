"""Settings of Spark that elastic jobs may want, as pairs of key and value: for SparkConf.set(*pair).

Spark 3.1 renamed the settings that Horovod knew as spark.blacklist.*; these are the names that Spark has now.
"""

from __future__ import annotations

__all__ = [
    "SPARK_CONF_ALWAYS_RESTART_FAILED_TASK", "SPARK_CONF_BLACKLIST_DISABLED", "SPARK_CONF_BLACKLIST_ENABLED",
    "SPARK_CONF_DEFAULT_VALUES", "SPARK_CONF_DONT_REUSE_EXECUTOR_FOR_SAME_TASK",
    "SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR",
    "SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR_IN_APP", "SPARK_CONF_DONT_REUSE_FAILING_NODE",
    "SPARK_CONF_DONT_REUSE_FAILING_NODE_IN_APP",
    "SPARK_CONF_DONT_REUSE_NODE_FOR_SAME_TASK", "SPARK_CONF_REUSE_EXECUTOR_ALWAYS_FOR_SAME_TASK",
    "SPARK_CONF_REUSE_EXECUTOR_ONCE_FOR_SAME_TASK", "SPARK_CONF_REUSE_FAILED_EXECUTOR",
    "SPARK_CONF_REUSE_FAILED_EXECUTOR_IN_APP",
    "SPARK_CONF_REUSE_FAILING_NODE", "SPARK_CONF_REUSE_FAILING_NODE_IN_APP",
    "SPARK_CONF_REUSE_NODE_ALWAYS_FOR_SAME_TASK",
    "SPARK_CONF_REUSE_NODE_ONCE_FOR_SAME_TASK",
]  # fmt: skip

_MANY = str(2**31 - 1)
_ENABLED = "spark.excludeOnFailure.enabled"
_TASK_EXECUTOR = "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor"
_TASK_NODE = "spark.excludeOnFailure.task.maxTaskAttemptsPerNode"
_STAGE_EXECUTOR = "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor"
_STAGE_NODE = "spark.excludeOnFailure.stage.maxFailedExecutorsPerNode"
_APP_EXECUTOR = "spark.excludeOnFailure.application.maxFailedTasksPerExecutor"
_APP_NODE = "spark.excludeOnFailure.application.maxFailedExecutorsPerNode"

SPARK_CONF_DEFAULT_VALUES = {
    "spark.task.maxFailures": "4", _ENABLED: "false", _TASK_EXECUTOR: "1", _TASK_NODE: "2", _STAGE_EXECUTOR: "2",
    _STAGE_NODE: "2",
    _APP_EXECUTOR: "2", _APP_NODE: "2",
}  # fmt: skip

# A lost executor's tasks run again, however often: a new worker joins the elastic job.
SPARK_CONF_ALWAYS_RESTART_FAILED_TASK = ("spark.task.maxFailures", _MANY)

SPARK_CONF_BLACKLIST_ENABLED = (_ENABLED, "true")
SPARK_CONF_BLACKLIST_DISABLED = (_ENABLED, "false")

# Where a task that failed on an executor, or on a node, may run again.
SPARK_CONF_REUSE_EXECUTOR_ALWAYS_FOR_SAME_TASK = (_TASK_EXECUTOR, _MANY)
SPARK_CONF_REUSE_EXECUTOR_ONCE_FOR_SAME_TASK = (_TASK_EXECUTOR, "2")
SPARK_CONF_DONT_REUSE_EXECUTOR_FOR_SAME_TASK = (_TASK_EXECUTOR, "1")
SPARK_CONF_REUSE_NODE_ALWAYS_FOR_SAME_TASK = (_TASK_NODE, _MANY)
SPARK_CONF_REUSE_NODE_ONCE_FOR_SAME_TASK = (_TASK_NODE, "2")
SPARK_CONF_DONT_REUSE_NODE_FOR_SAME_TASK = (_TASK_NODE, "1")

# Whether other tasks of the job, or of the application, run where one failed.
SPARK_CONF_REUSE_FAILED_EXECUTOR = (_STAGE_EXECUTOR, _MANY)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR = (_STAGE_EXECUTOR, "1")
SPARK_CONF_REUSE_FAILING_NODE = (_STAGE_NODE, _MANY)
SPARK_CONF_DONT_REUSE_FAILING_NODE = (_STAGE_NODE, "1")
SPARK_CONF_REUSE_FAILED_EXECUTOR_IN_APP = (_APP_EXECUTOR, _MANY)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR_IN_APP = (_APP_EXECUTOR, "1")
SPARK_CONF_REUSE_FAILING_NODE_IN_APP = (_APP_NODE, _MANY)
SPARK_CONF_DONT_REUSE_FAILING_NODE_IN_APP = (_APP_NODE, "1")
