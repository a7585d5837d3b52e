"""Searches are not in this release."""

from .._refuse import internal

__getattr__ = internal(
    "azureml.train.hyperdrive", "the server does not search yet: submit one run for each choice, with tags, and compare run.get_metrics()"
)
