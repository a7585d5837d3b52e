"""The older place of compute targets' names."""

from ..exceptions import ComputeTargetException
from .compute import AmlCompute, ComputeTarget

__all__ = ["AmlCompute", "ComputeTarget", "ComputeTargetException"]
