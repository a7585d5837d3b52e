"""The settings of a job that `hora.run` takes as keyword arguments: made from the table of the package job, and held to
it by its test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypedDict


class Settings(TypedDict, total=False):
    start_timeout: float | str
    peer_timeout: float | str
    dir: str
    bind: str
    gpus_per_rank: int
    tls: bool
    legacy: str
    name: str
    ssh_port: int
    ssh_identity_file: str
    remote_hora: str
    port: int
    network_interfaces: str | Sequence[str]
    log_dir: str
    tag_output: bool
    prefix_output_with_timestamp: bool
    events: str
    timeline: str
    timeline_mark_cycles: bool
    slots_per_host: int
    elastic_timeout: float | str
    restarts: int
    reset_limit: int
    blacklist_cooldown_range: Sequence[float | str]
    blacklist: str
    on_loss: str
    drain_on: str
    coordinator_state: str
    report: str
    discover: str
    fusion_threshold_mb: float
    cache_capacity: int
    stall_check: bool
    stall_check_warning_time_seconds: float | str
    stall_check_shutdown_time_seconds: float | str
    gloo_timeout_seconds: float | str


FLAGS = {
    "start_timeout": "--start-timeout",
    "peer_timeout": "--peer-timeout",
    "dir": "--dir",
    "bind": "--bind",
    "gpus_per_rank": "--gpus-per-rank",
    "tls": "--tls",
    "legacy": "--legacy",
    "name": "--job",
    "ssh_port": "--ssh-port",
    "ssh_identity_file": "--ssh-identity-file",
    "remote_hora": "--remote-hora",
    "port": "--port",
    "network_interfaces": "--network-interfaces",
    "log_dir": "--output-filename",
    "tag_output": "--tag-output",
    "prefix_output_with_timestamp": "--prefix-output-with-timestamp",
    "events": "--events",
    "timeline": "--timeline-filename",
    "timeline_mark_cycles": "--timeline-mark-cycles",
    "slots_per_host": "--slots-per-host",
    "elastic_timeout": "--elastic-timeout",
    "restarts": "--restarts",
    "reset_limit": "--reset-limit",
    "blacklist_cooldown_range": "--blacklist-cooldown-range",
    "blacklist": "--blacklist",
    "on_loss": "--on-loss",
    "drain_on": "--drain-on",
    "coordinator_state": "--coordinator-state",
    "report": "--report",
    "discover": "--discover",
    "fusion_threshold_mb": "--fusion-threshold-mb",
    "cache_capacity": "--cache-capacity",
    "stall_check": "--stall-check",
    "stall_check_warning_time_seconds": "--stall-check-warning-time-seconds",
    "stall_check_shutdown_time_seconds": "--stall-check-shutdown-time-seconds",
    "gloo_timeout_seconds": "--gloo-timeout-seconds",
}


def flags(settings: Mapping[str, Any], others: Sequence[str]) -> Iterator[str]:
    """The settings as flags of `hora run`; `others` are further arguments of the function that takes them."""
    for key, value in settings.items():
        if key not in FLAGS:
            near = get_close_matches(key, [*FLAGS, *others], 1)
            raise TypeError(
                f"run() got an unexpected keyword argument '{key}'" + (f"; did you mean {near[0]}?" if near else "")
            )
        if value is None:
            continue
        if isinstance(value, bool):
            yield f"{FLAGS[key]}={'true' if value else 'false'}"
        elif isinstance(value, (list, tuple)) and key == "blacklist_cooldown_range":
            yield FLAGS[key]
            yield from map(str, value)
        elif isinstance(value, (list, tuple)):
            yield f"{FLAGS[key]}={','.join(map(str, value))}"
        else:
            yield f"{FLAGS[key]}={value}"
