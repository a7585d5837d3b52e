"""horovod.run: a function on many processes, from a program or a notebook."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["run"]


def run(
    func: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None, max_num_proc: int | None = None, slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None, hosts: str | None = None, hostfile: str | None = None,
    start_timeout: int | None = None, ssh_port: int | None = None, ssh_identity_file: str | None = None,
    disable_cache: bool | None = None, output_filename: str | None = None, verbose: bool | None = None,
    use_gloo: bool | None = None, use_mpi: bool | None = None, mpi_args: str | None = None,
    network_interface: str | None = None, executable: str | None = None,
    network_interfaces: Sequence[str] | None = None,
    host_discovery_script: str | None = None, np: int | None = None, min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:  # fmt: skip
    """Run func(*args, **kwargs) on `num_proc` processes and return their results by rank.

    With min_num_proc, max_num_proc or host_discovery_script the job is elastic and func trains with hvd.elastic.run;
    the results are then those of the first min_num_proc ranks there are at the end.
    """
    import hora

    num_proc = _renamed("np", np, "num_proc", num_proc)
    min_num_proc = _renamed("min_np", min_np, "min_num_proc", min_num_proc)
    max_num_proc = _renamed("max_np", max_np, "max_num_proc", max_num_proc)
    if hosts is not None and hostfile is not None:
        raise ValueError("Argument hosts and hostfile only allow one provided.")
    if use_gloo and use_mpi:
        raise ValueError("Argument use_gloo and use_mpi only allow one set True.")
    if use_mpi or mpi_args is not None:
        raise ValueError(
            "run: use_mpi and mpi_args ask for Horovod's MPI mode, which hora does not have; leave them out"
        )
    options: dict[str, Any] = {}
    elastic = host_discovery_script is not None or min_num_proc is not None or max_num_proc is not None
    wanted = 1 if num_proc is None else num_proc
    if elastic:
        options["min_np"], options["max_np"] = wanted if min_num_proc is None else min_num_proc, max_num_proc
    else:
        for name, value in (("reset_limit", reset_limit), ("cooldown_range", cooldown_range), ("slots", slots)):
            if value is not None:
                raise ValueError(f"run: {name} is for elastic jobs; give min_num_proc as well, or leave it out")
    if hosts is not None:
        options["hosts"] = hosts
    elif hostfile is not None:
        options["hosts"] = _read_hosts(hostfile)
    flags = []
    for flag, value in (
        ("--start-timeout", start_timeout), ("--ssh-port", ssh_port), ("--ssh-identity-file", ssh_identity_file),
        ("--output-filename", output_filename), ("--reset-limit", reset_limit), ("--slots-per-host", slots),
        ("--host-discovery-script", host_discovery_script),
        ("--network-interfaces", network_interface or (",".join(network_interfaces) if network_interfaces else None)),
    ):  # fmt: skip
        if value is not None:
            flags += [flag, str(value)]
    if cooldown_range is not None:
        flags += ["--blacklist-cooldown-range", *map(str, cooldown_range)]
    if verbose:
        flags.append("--verbose")
    if flags:
        options["flags"] = flags
    if executable is not None:
        options["python"] = executable
    results = hora.run(func, args=tuple(args), kwargs=kwargs or {}, np=wanted, **options)
    return results[: options["min_np"]] if elastic else results


def _renamed(old: str, old_value: Any, new: str, new_value: Any) -> Any:
    if old_value is None:
        return new_value
    if new_value is not None and new_value != old_value:
        raise ValueError(f"run: {old}={old_value} and {new}={new_value} contradict each other; give {new} only")
    warnings.warn(f"{old} is deprecated, use {new} instead", DeprecationWarning, stacklevel=3)
    return old_value


def _read_hosts(path: str) -> str:
    """`name slots=N` lines as name:N,…"""
    hosts = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            words = line.split("#")[0].split()
            if words:
                slots = next((w[6:] for w in words[1:] if w.startswith("slots=")), "1")
                hosts.append(f"{words[0]}:{slots}")
    if not hosts:
        raise ValueError(f"run: hostfile {path} names no host; write lines such as: node1 slots=4")
    return ",".join(hosts)
