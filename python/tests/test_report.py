"""hora.report: what is one number, and what is a step."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import hora
from hora import ArgumentError, _report


class Lost:
    """A tensor of one element whose step has failed."""

    shape = (1,)

    def __float__(self) -> float:
        raise RuntimeError("lost rank 1")

    __index__ = __float__  # type: ignore[assignment]


def test_a_step_is_a_whole_number() -> None:
    for step in (
        2,
        2.0,
        True,
        np.int64(2),
        np.float32(2),
        np.array([2]),
        torch.tensor(2),
        torch.tensor([2.0]),
        Decimal(2),
        Fraction(4, 2),
    ):
        got = _report.number(step)
        assert type(got) is int and got == step, step
    assert _report.number(2**63 + 1) == 2**63 + 1
    two = torch.tensor([1, 2])
    numbers = (2.7, -0.5, 2j, float("nan"), float("inf"), Decimal("2.7"), Fraction(5, 2), np.float32(2.7), np.arange(2))
    tensors = (torch.tensor(2.7), two, two.float(), torch.tensor(1j), torch.empty(1, device="meta"))
    for wrong in (*numbers, *tensors, "2", b"2", None, [2]):
        with pytest.raises(ArgumentError, match="is no whole number: give one, as in hora.report.10, loss=loss."):
            _report.number(wrong)
    for wrong in (2.7, two.float()):
        with pytest.raises(ArgumentError, match="is no whole number"):
            hora.report(wrong, loss=1.0)  # type: ignore[arg-type]


def test_a_number_is_one() -> None:
    for given in (
        0.5,
        np.float32(0.5),
        np.array([0.5]),
        torch.tensor([[0.5]]),
        torch.tensor(0.5, requires_grad=True),
        Decimal("0.5"),
    ):
        assert _report.value("loss", given) == 0.5
    assert _report.value("loss", torch.tensor(float("nan"))) == "nan"
    wrong: Any
    for wrong in (
        torch.ones(2),
        torch.ones(0),
        torch.tensor(1j),
        torch.empty(1, device="meta"),
        np.ones(2),
        1j,
        "0.5",
        None,
        [1],
    ):
        with pytest.raises(
            TypeError, match=r"hora.report\(loss=...\): \w+ is not one number: give a float, or a tensor with one"
        ):
            hora.report(1, loss=wrong)
    with pytest.raises(TypeError, match=r"hora.report\(loss=...\): the number is larger than a float can say"):
        hora.report(1, loss=10**400)


def test_the_failure_of_what_makes_a_number_is_told_as_it_is() -> None:
    """It has hora's sentence, by which hora.elastic knows it."""
    for call in (lambda: hora.report(1, loss=Lost()), lambda: hora.report(Lost(), loss=1.0)):  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="lost rank 1"):
            call()
