"""The older place of AmlCompute's names."""

from . import AmlCompute, AmlComputeStatus

__all__ = ["AmlCompute", "AmlComputeStatus"]
