"""Where runs run: a pool of the server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

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


class ComputeTarget:
    """A pool of the server under a name."""

    def __new__(cls, workspace: Workspace, name: str) -> ComputeTarget:
        made: ComputeTarget = object.__new__(AmlCompute)
        return made

    def __init__(self, workspace: Workspace, name: str) -> None:
        kept = workspace._kept("computes").get(name)
        own = bool(_nodes(workspace, name))
        if kept is None and not own:
            raise ComputeTargetException(f"there is no compute target {name} in workspace {workspace.name}: ComputeTarget.create makes one")
        kept = kept or {}
        self.workspace, self.name, self.type, self.location = workspace, name, "AmlCompute", workspace.location
        self.vm_size = kept.get("vm_size", "")
        self.provisioning_state = "Succeeded"
        self._low = kept.get("vm_priority") == "lowpriority"
        self._pool = name if own else "default"
        self._own = own and name != "default"

    def __repr__(self) -> str:
        return f"AmlCompute(workspace={self.workspace!r}, name={self.name}, type=AmlCompute, provisioning_state=Succeeded)"

    @staticmethod
    def create(workspace: Workspace, name: str, provisioning_configuration: Provisioning) -> ComputeTarget:
        """Makes a compute target, or changes the one of that name."""
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{1,23}", name):
            raise ComputeTargetException(
                f"{name!r} is no name of a compute target: it has 2 to 24 letters, digits and -, and begins with a letter"
            )
        asked = provisioning_configuration
        with workspace._changing("computes") as kept:
            kept[name] = {
                "vm_size": asked.vm_size,
                "vm_priority": asked.vm_priority,
                "min_nodes": asked.min_nodes,
                "max_nodes": asked.max_nodes,
            }
        if not _nodes(workspace, name):
            notice(
                f"the compute target {name} is the server's pool default, this machine as it is: "
                f"vm_size {asked.vm_size or '(none)'}, min_nodes {asked.min_nodes} and max_nodes {asked.max_nodes} change nothing"
            )
        return ComputeTarget(workspace, name)

    @staticmethod
    def list(workspace: Workspace) -> list[ComputeTarget]:
        """The server's pools, and what create has made."""
        names = dict.fromkeys([*(n["pool"] for n in workspace.client.nodes()), *workspace._kept("computes")])
        return [ComputeTarget(workspace, n) for n in names]

    @staticmethod
    def attach(*_: Any, **__: Any) -> NoReturn:
        """Refused."""
        raise UserErrorException("ComputeTarget.attach is not in hora-azureml: a machine becomes a node of the server, see docs/server.md")

    def wait_for_completion(
        self,
        show_output: bool = False,
        min_node_count: int | None = None,
        timeout_in_minutes: float = 25,
        is_delete_operation: bool = False,
    ) -> None:
        """Says where it stands: it is there at once."""
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
        return [{"nodeId": n["name"], "nodeState": "running" if n["jobs"] else "idle"} for n in _nodes(self.workspace, self._pool)]

    def update(
        self, min_nodes: int | None = None, max_nodes: int | None = None, idle_seconds_before_scaledown: int | None = None, **_: Any
    ) -> None:
        """Keeps other bounds."""
        with self.workspace._changing("computes") as kept:
            one = kept.setdefault(self.name, {"vm_size": self.vm_size, "vm_priority": "dedicated"})
            one |= {k: v for k, v in {"min_nodes": min_nodes, "max_nodes": max_nodes}.items() if v is not None}

    def delete(self) -> None:
        """Forgets what create has made; the server's pools stay."""
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
            "admin_username": admin_username, "admin_user_password": admin_user_password, "admin_user_ssh_key": admin_user_ssh_key,
            "vnet_resourcegroup_name": vnet_resourcegroup_name, "vnet_name": vnet_name, "subnet_name": subnet_name, "location": location,
            "remote_login_port_public_access": remote_login_port_public_access, "identity_type": identity_type, "identity_id": identity_id,
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


_INSTEAD = "take AmlCompute: a name for a pool of the server"
__getattr__ = internal("azureml.core.compute", _INSTEAD)


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
