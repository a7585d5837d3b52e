"""Where runs run: a pool of the server."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from hora.server import ServerError

from ..._absent import absent
from ..._refuse import internal, notice, unused
from ...exceptions import ComputeTargetException, UserErrorException
from ._sizes import SIZES

if TYPE_CHECKING:
    from ..workspace import Workspace

__all__ = ["AmlCompute", "AmlComputeStatus", "ComputeTarget"]


@dataclass
class Provisioning:
    """What AmlCompute.provisioning_configuration answers."""

    vm_size: str
    vm_priority: str
    min_nodes: int
    max_nodes: int
    idle_seconds: int


class AmlComputeStatus:
    """How many nodes a pool has."""

    def __init__(self, target: ComputeTarget, nodes: list[dict[str, Any]]) -> None:
        self.allocation_state = "Steady"
        self.provisioning_state = "Succeeded"
        self.current_node_count = self.target_node_count = len(nodes)
        self.vm_size, self.vm_priority = target.vm_size, "LowPriority" if target._low else "Dedicated"
        busy = sum(n["jobs"] > 0 for n in nodes)
        self.node_state_counts = {
            "idleNodeCount": len(nodes) - busy,
            "runningNodeCount": busy,
            "preparingNodeCount": 0,
            "unusableNodeCount": 0,
        }
        self.errors: list[Any] = []

    def serialize(self) -> dict[str, Any]:
        """As a dict."""
        return {
            "currentNodeCount": self.current_node_count,
            "targetNodeCount": self.target_node_count,
            "nodeStateCounts": self.node_state_counts,
            "allocationState": self.allocation_state,
            "provisioningState": self.provisioning_state,
            "vmSize": self.vm_size,
            "vmPriority": self.vm_priority,
            "errors": None,
        }


def _nodes(workspace: Workspace, pool: str) -> list[dict[str, Any]]:
    return [n for n in workspace.client.nodes() if n["pool"] == pool]


def _pool(workspace: Workspace, name: str) -> dict[str, Any] | None:
    """The server's pool of that name, small letters or not: it may have no node now."""
    return next((p for p in workspace.client.pools() if p["name"] == name.lower()), None)


def gpus_of(workspace: Workspace, pool: str) -> int:
    """How many GPUs each of a pool's nodes has, at least: those that are there, else those that will be made."""
    there = [n.get("gpus", 0) for n in _nodes(workspace, pool)]
    if not there:
        there = [((_pool(workspace, pool) or {}).get("node") or {}).get("gpus", 0)]
    return min(there)


def _node_size(workspace: Workspace, vm_size: str, most: int) -> dict[str, int]:
    """What each of a pool's nodes is: of the size's cores, and of no more memory and GPUs than this machine has."""
    machine = next(iter(_nodes(workspace, "default")), {})
    size = SIZES.get(vm_size.lower())
    if size is None:
        cores = max(machine.get("slots", 1) // max(most, 1), 1)
        if vm_size:
            notice(
                f"vm_size {vm_size} is no size that is known here: each node has its share of the server's machine, "
                f"{cores} core{'s' * (cores != 1)}; AmlCompute.supported_vmsizes lists those that are"
            )
        return {"cores": cores}
    of = {"cores": size.cores, "gpus": min(size.gpus, machine.get("gpus", 0))}
    if machine.get("memory"):
        of["memory"] = min(size.memory << 30, machine["memory"])
    return of


def _make_pool(workspace: Workspace, name: str, asked: Provisioning) -> bool:
    """Makes the pool of a compute target, or changes it; False where the caller may not."""
    size = _node_size(workspace, asked.vm_size, asked.max_nodes)
    bounds = {"min": asked.min_nodes, "max": max(asked.max_nodes, 1), "idle": float(max(asked.idle_seconds, 1))}
    there = _pool(workspace, name) or {}
    try:  # for whose jobs it is stays
        made = workspace.client.add_pool(name.lower(), "local", node=size, projects=there.get("projects"), **bounds)
    except ServerError as e:
        if e.status != 403:
            raise ComputeTargetException(f"make the compute target {name}: {e}") from e
        notice(
            f"the compute target {name} is the server's pool default, this machine as it is: to make a pool asks for an administrator"
        )
        return False
    if made.get("warning"):
        notice(f"the compute target {name}: {made['warning']}")
    return True


class ComputeTarget:
    """A pool of the server under a name."""

    def __new__(cls, workspace: Workspace, name: str) -> ComputeTarget:
        made: ComputeTarget = object.__new__(AmlCompute)
        return made

    def __init__(self, workspace: Workspace, name: str) -> None:
        kept = workspace._kept("computes").get(name)
        own = _pool(workspace, name) is not None
        if kept is None and not own:
            raise ComputeTargetException(
                f"there is no compute target {name} in workspace {workspace.name}: ComputeTarget.create makes one"
            )
        kept = kept or {}
        self.workspace, self.name, self.type, self.location = workspace, name, "AmlCompute", workspace.location
        self.vm_size = kept.get("vm_size", "")
        self.provisioning_state = "Succeeded"
        self._low = kept.get("vm_priority") == "lowpriority"
        self._pool = name.lower() if own else "default"
        self._own = own and self._pool != "default"

    def __repr__(self) -> str:
        return (
            f"AmlCompute(workspace={self.workspace!r}, name={self.name}, type=AmlCompute, provisioning_state=Succeeded)"
        )

    @staticmethod
    def create(workspace: Workspace, name: str, provisioning_configuration: Provisioning) -> ComputeTarget:
        """Makes a compute target, or changes the one of that name."""
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{1,23}", name):
            raise ComputeTargetException(
                f"{name!r} is no name of a compute target: it has 2 to 24 letters, digits and -, and begins with a letter"
            )
        asked = provisioning_configuration
        there = _pool(workspace, name)
        ours = there is None or bool(workspace._kept("computes").get(name, {}).get("made"))
        if ours:
            made = _make_pool(workspace, name, asked)
        else:
            made = False
            notice(f"the compute target {name} is the server's pool of that name, as it is")
        with workspace._changing("computes") as kept:
            kept[name] = {**vars(asked), "made": made}
        return ComputeTarget(workspace, name)

    @staticmethod
    def list(workspace: Workspace) -> list[ComputeTarget]:
        """The server's pools, and what create has made."""
        pools = [p for p in workspace.client.pools() if workspace.name in p.get("projects", [workspace.name])]
        names = dict.fromkeys([*(p["name"] for p in pools), *workspace._kept("computes")])
        return [ComputeTarget(workspace, n) for n in names]

    @staticmethod
    def attach(*_: Any, **__: Any) -> NoReturn:
        """Refused."""
        raise UserErrorException(
            "ComputeTarget.attach is not in hora-azureml: a machine becomes a node of the server, see docs/server.md"
        )

    def wait_for_completion(
        self,
        show_output: bool = False,
        min_node_count: int | None = None,
        timeout_in_minutes: float = 25,
        is_delete_operation: bool = False,
    ) -> None:
        """Waits for the nodes that stay, and says where it stands: the pool is there at once."""
        least = self.workspace._kept("computes").get(self.name, {}).get("min_nodes", 0) if self._own else 0
        end = time.monotonic() + 60 * timeout_in_minutes
        while not is_delete_operation and self.get_status().current_node_count < min(min_node_count or least, least):
            if time.monotonic() > end:
                raise ComputeTargetException(
                    f"{self.name} has not got its {least} nodes in {timeout_in_minutes} minutes: see hora pool list"
                )
            time.sleep(0.2)
        if show_output:
            print(
                f"SucceededProvisioning operation finished, operation Succeeded\n{self.name}: {self.get_status().current_node_count} nodes"
            )

    def get_status(self) -> AmlComputeStatus:
        """How many nodes there are."""
        return AmlComputeStatus(self, _nodes(self.workspace, self._pool))

    @property
    def status(self) -> AmlComputeStatus:
        """How many nodes there are."""
        return self.get_status()

    def refresh_state(self) -> None:
        """Nothing is cached."""

    def list_nodes(self) -> list[dict[str, Any]]:
        """The nodes."""
        return [
            {"nodeId": n["name"], "nodeState": "running" if n["jobs"] else "idle"}
            for n in _nodes(self.workspace, self._pool)
        ]

    def update(
        self,
        min_nodes: int | None = None,
        max_nodes: int | None = None,
        idle_seconds_before_scaledown: int | None = None,
        **given: Any,
    ) -> None:
        """Gives the pool that create has made other bounds; other pools of the server stay as they are, which is said."""
        internal(type(self).update, "AmlCompute.update", given)
        if not self._made():
            self._stays("hora pool add")
            return
        new = {"min_nodes": min_nodes, "max_nodes": max_nodes, "idle_seconds": idle_seconds_before_scaledown}
        with self.workspace._changing("computes") as kept:
            one = kept.setdefault(self.name, {"vm_size": self.vm_size, "vm_priority": "dedicated"})
            one |= {k: v for k, v in new.items() if v is not None}
            now = dict(one)
        _make_pool(self.workspace, self.name, Provisioning(**{k: v for k, v in now.items() if k != "made"}))

    def _made(self) -> bool:
        """Whether this user's create has made the pool."""
        return bool(self.workspace._kept("computes").get(self.name, {}).get("made"))

    def _stays(self, instead: str) -> None:
        notice(
            f"the compute target {self.name} is the server's pool {self._pool}, which no ComputeTarget.create of yours "
            f"has made here: it stays as it is, and an administrator changes that with {instead} {self._pool}"
        )

    def delete(self) -> None:
        """Removes the pool that create has made; other pools of the server stay, which is said."""
        if not self._made():
            self._stays("hora pool remove")
        else:
            try:
                self.workspace.client.remove_pool(self.name.lower())
            except ServerError as e:
                if e.status != 404:
                    raise ComputeTargetException(f"delete the compute target {self.name}: {e}") from e
        with self.workspace._changing("computes") as kept:
            kept.pop(self.name, None)

    def serialize(self) -> dict[str, Any]:
        """As a dict."""
        return {
            "name": self.name,
            "type": "AmlCompute",
            "provisioningState": "Succeeded",
            "properties": {"vmSize": self.vm_size, "pool": self._pool},
        }


class AmlCompute(ComputeTarget):
    """A pool of the server under a name."""

    @staticmethod
    def provisioning_configuration(
        vm_size: str = "",
        vm_priority: str = "dedicated",
        min_nodes: int = 0,
        max_nodes: int | None = None,
        idle_seconds_before_scaledown: float | str | None = None,
        admin_username: object = None,
        admin_user_password: object = None,
        admin_user_ssh_key: object = None,
        vnet_resourcegroup_name: object = None,
        vnet_name: object = None,
        subnet_name: object = None,
        tags: object = None,
        description: object = None,
        remote_login_port_public_access: object = None,
        identity_type: object = None,
        identity_id: object = None,
        location: object = None,
        enable_node_public_ip: object = None,
    ) -> Provisioning:
        """What ComputeTarget.create takes: a size of nodes and bounds on their number."""
        elsewhere = {
            "admin_username": admin_username, "admin_user_password": admin_user_password,
            "admin_user_ssh_key": admin_user_ssh_key,
            "vnet_resourcegroup_name": vnet_resourcegroup_name, "vnet_name": vnet_name, "subnet_name": subnet_name,
            "location": location,
            "remote_login_port_public_access": remote_login_port_public_access, "identity_type": identity_type,
            "identity_id": identity_id,
        }  # fmt: skip
        unused("AmlCompute.provisioning_configuration", elsewhere)
        if vm_priority not in ("dedicated", "lowpriority"):
            raise ComputeTargetException(f"vm_priority {vm_priority!r}: take dedicated or lowpriority")
        low, high = int(min_nodes or 0), 4 if max_nodes is None else int(max_nodes)
        if not 0 <= low <= high:
            raise ComputeTargetException(f"min_nodes {low} and max_nodes {high}: give 0 ≤ min_nodes ≤ max_nodes")
        return Provisioning(vm_size, vm_priority, low, high, int(float(idle_seconds_before_scaledown or 1800)))

    @staticmethod
    def supported_vmsizes(workspace: Workspace, location: str | None = None) -> list[dict[str, Any]]:
        """The sizes that are known by name."""
        return [{"name": s.name, "vCPUs": s.cores, "gpus": s.gpus, "memoryGB": float(s.memory)} for s in SIZES.values()]


__getattr__ = absent(__name__)


@dataclass
class Target:
    """Where a run goes."""

    name: str
    pool: str
    pool_of_its_own: bool
    low_priority: bool


def target_of(workspace: Workspace, given: Any) -> Target:
    """The pool that a run's compute target means."""
    if isinstance(given, ComputeTarget):
        return Target(given.name, given._pool, given._own, given._low)
    name = str(given or "default")
    if name in ("local", "amlcompute", "default"):
        return Target(name, "default", False, False)
    try:
        found = ComputeTarget(workspace, name)
    except ComputeTargetException:
        notice(f"there is no compute target {name}: the run goes to the server's pool default")
        return Target(name, "default", False, False)
    return Target(name, found._pool, found._own, found._low)
