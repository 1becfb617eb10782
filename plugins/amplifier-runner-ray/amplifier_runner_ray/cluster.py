"""Start sessions on a Ray cluster, as `Zygotes` starts them on this machine.

The process that talks to Ray is a *bridge* beside this one (`bridge`): Ray ends the clients of a lost cluster, and this
process is not to end with it. The bridge is started and asked like a zygote.
"""

from __future__ import annotations

import json
import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from amplifier_core.entry_points import find_entry_points
from amplifier_core.model_drafts import new_list
from amplifier_core.utils.interpreters import PYTHON
from amplifier_foundation.documents.dicts import get_nested
from amplifier_foundation.documents.fields import Section
from amplifier_foundation.isolation.fresh import BEGIN
from amplifier_foundation.isolation.zygotes import Zygotes, module_folders

from .leftovers import end_leftovers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from amplifier_foundation.isolation.jobs import Job

MODULE = "runner-ray"
LOCAL = "local"
"""The address for a cluster of its own, on this machine, for as long as the bridge runs."""
RUNNING = Path("/tmp/ray/ray_current_cluster")
"""Ray's file with the address of a cluster that `ray start` began on this machine."""

PLAIN = re.compile("PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|TMPDIR|TZ|LD_LIBRARY_PATH|VIRTUAL_ENV|LC_.*|RAY_.*")
"""Variables of the bridge: no key of this environment is there, nor in a cluster of its own."""


class RayConfig(Section):
    """The configuration of the runner: `overrides: {runner-ray: {config: {…}}}` in your own settings."""

    address: str = ""
    """`HOST:PORT` of the cluster, or `local`; '': `RAY_ADDRESS`, else the cluster on this machine."""
    sessions: int = Field(default=32, ge=1)
    """Sessions at a time; the others wait."""
    cpus: float = Field(default=1, ge=0)
    """Processors that Ray reserves for a session."""
    resources: dict[str, float] = Field(default_factory=dict)
    """Further resources that Ray reserves for a session, by name."""
    environment: list[str] = Field(default_factory=new_list)
    """Variables of this environment that sessions get, besides the keys of their providers."""


def read_config() -> RayConfig:
    """Return the configuration of the user's own settings: no project leads sessions elsewhere. Raises `ValueError`."""
    from amplifier_foundation.settings import read_settings

    layer = next((each for each in read_settings().layers if each.source == "user"), None)
    given = get_nested(layer.values, ("overrides", MODULE, "config"), {}) if layer is not None else {}
    try:
        return RayConfig.model_validate(given)
    except ValidationError as error:
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # unknown keys come first
        path, message = ".".join(map(str, (MODULE, "config", *first["loc"]))), first["msg"]
        if first["type"] == "extra_forbidden":
            known = sorted(RayConfig.model_fields)
            close = get_close_matches(str(first["loc"][-1]), known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise ValueError(f"settings: overrides.{path}: {message}") from None


def find_address(config: RayConfig) -> str:
    """Return the address of the cluster; '' without one."""
    given = config.address or os.environ.get("RAY_ADDRESS", "")
    return given or ("auto" if RUNNING.is_file() else "")


class RayCluster(Zygotes):
    """Starts children on the nodes of a Ray cluster."""

    def __init__(self, config: RayConfig | None = None) -> None:
        self.config = config if config is not None else RayConfig()
        environ = {name: value for name, value in os.environ.items() if PLAIN.fullmatch(name)}
        super().__init__(self.config.sessions, environ=environ)

    def prepare(self) -> None:
        """Have nothing ready here: a child that waits would keep a processor of the cluster. The nodes have."""

    def close(self) -> None:
        """End the bridge, with what a killed one before it left."""
        super().close()
        end_leftovers()

    def command(self, control: int) -> list[str]:
        """Return the command that starts a bridge."""
        asked = {"address": find_address(self.config), "cpus": self.config.cpus, "resources": self.config.resources}
        function = "amplifier_runner_ray.bridge:begin_bridge"
        folders = json.dumps(module_folders())
        return [*PYTHON, "-I", str(BEGIN), function, folders, str(control), json.dumps(asked)]

    def describe_process(self, job: Job, paths: Iterable[str]) -> dict[str, Any]:
        """Return what a child on a node gets of this environment: named variables, and the keys of its providers."""
        names = {*self.config.environment, *_find_keys(job.request.config)}
        return {"path": None, "environ": {name: os.environ[name] for name in sorted(names) if name in os.environ}}


def _find_keys(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the variables with keys of the providers in a plan and of its agents."""
    from amplifier_foundation.bundle.credentials import find_key_names

    sections = [plan, *(each for each in (plan.get("agents") or {}).values() if isinstance(each, dict))]
    modules = {
        str(spec.get("module") if isinstance(spec, dict) else spec)
        for section in sections
        for spec in section.get("providers") or ()
    }
    for module in modules:
        if any(find_entry_points("amplifier.modules", module)):
            yield from find_key_names(module)
