"""Errors under the names that scripts catch."""

from __future__ import annotations


class AzureMLException(Exception):
    """Anything that goes wrong here."""

    def __init__(self, exception_message: str = "", **_: object) -> None:
        super().__init__(exception_message)
        self.message = exception_message


class UserErrorException(AzureMLException):
    """What a script asks for cannot be."""


class RunConfigurationException(UserErrorException):
    """A run's description contradicts itself."""


class TrainingException(UserErrorException):
    """An estimator's description contradicts itself."""


class ComputeTargetException(AzureMLException):
    """There is no such compute target."""


class ProjectSystemException(UserErrorException):
    """There is no such workspace or experiment."""


class WorkspaceException(UserErrorException):
    """There is no such workspace."""


class RunEnvironmentException(UserErrorException):
    """This process is no run."""


class ActivityFailedException(AzureMLException):
    """A run has failed."""


class ExperimentExecutionException(AzureMLException):
    """A run could not be submitted."""


class ModelNotFoundException(AzureMLException):
    """There is no such model."""
