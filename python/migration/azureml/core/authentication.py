"""Whoever has the server's token may call it (HORA_TOKEN, or what `hora up` and `hora login` keep): these change
nothing."""

from __future__ import annotations

from typing import Any

from .._refuse import notice


class AbstractAuthentication:
    """An identity of Azure's."""

    def __init__(self, *_: Any, **__: Any) -> None:
        notice(f"{type(self).__name__} changes nothing: the server's token is HORA_TOKEN's, or what hora login keeps")


class InteractiveLoginAuthentication(AbstractAuthentication):
    """A login in a browser."""


class AzureCliAuthentication(AbstractAuthentication):
    """The login of a command line."""


class ServicePrincipalAuthentication(AbstractAuthentication):
    """The login of a program."""


class MsiAuthentication(AbstractAuthentication):
    """The login of a machine."""
