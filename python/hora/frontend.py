"""What a package needs that puts another interface before hora, besides `hora.group`: where the job stands, and
compiled programs.

`hora-compat` stands on this page. A life of the world begins with `init()` and with every epoch of an elastic job.

is_elastic, news, foresight, finish_elastic, leave_elastic, recovered   the job's epochs, for loops that are not
`hora.elastic.run`; of its own loop those have
FRUITLESS   how many epochs in a row may break before anything is committed
steps_since     how many steps a state counts beyond a kept one
drained_by_sigterm  a context in which SIGTERM asks this rank to commit and leave
life        the number of this life of the world: what was made in another one is void
hosts       the host of every rank
number      the number by which compiled programs name a group
places_asked, place   HORA_CHECK_CALLS, and where in the program a call is made, for names
behind      the hora error inside an exception of a framework's own class
"""

from __future__ import annotations

from . import _bridge, _lib, _site, _world
from ._sigterm import drained_by_sigterm
from .elastic import FRUITLESS, steps_since

__all__ = [
    "FRUITLESS",
    "behind",
    "drained_by_sigterm",
    "finish_elastic",
    "foresight",
    "hosts",
    "is_elastic",
    "leave_elastic",
    "life",
    "news",
    "number",
    "place",
    "places_asked",
    "recovered",
    "steps_since",
]


behind = _bridge.failure
number = _bridge.number
places_asked, place = _site.asked, _site.site
is_elastic, news, foresight = _world.is_elastic, _world.news, _world.foresight
finish_elastic, leave_elastic, recovered = _world.finish_elastic, _world.leave_elastic, _world.recovered


def life() -> int:
    """Which life of the world this is, from 1; 0 before the first."""
    return _lib.age


def hosts() -> list[str] | None:
    """The host of every rank, in rank order; None where that is not known."""
    found = _world.info(0).get("hosts")
    return found if isinstance(found, list) else None
