"""Check the shape of a mount plan; no module is looked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .base import Checks

if TYPE_CHECKING:
    from .base import ValidationCheck

SECTIONS = ("session", "orchestrator", "context", "providers", "tools", "hooks", "agents", "spawn")
REQUIRED = ("orchestrator", "context")
LISTS = ("providers", "tools", "hooks")


@dataclass
class MountPlanValidationResult(Checks):
    """The checks of one mount plan; the name of a check tells the place and the rule."""

    checks: list[ValidationCheck] = field(default_factory=list)

    def format_errors(self) -> str:
        """Return the errors as a numbered list, "No errors" when there are none."""
        if self.passed:
            return "No errors"
        lines = [f"  {number}. [{check.name}] {check.message}" for number, check in enumerate(self.errors, 1)]
        return "\n".join(["The mount plan is not valid:", "", *lines, "", f"{len(lines)} error(s)"])


class MountPlanValidator:
    """Checks the shape of mount plans: a session accepts every plan that passes.

    The orchestrator and the context are each a module's id or a mapping; a section, a config or a source of None counts
    as absent.
    """

    def validate(self, mount_plan: Any) -> MountPlanValidationResult:
        """Return all possible checks."""
        result = MountPlanValidationResult()
        if _is_mapping(result, "root_type", "the mount plan", mount_plan) and _has_session(result, mount_plan):
            _check_section_names(result, mount_plan)
            _check_required(result, mount_plan)
            for section in LISTS:
                _check_list(result, section, mount_plan.get(section))
            _check_instances(result, mount_plan.get("providers"))
        return result


def _is_mapping(result: Checks, check: str, what: str, value: Any) -> bool:
    return result.record(
        check, isinstance(value, dict), f"{what} is a dict", f"{what} must be a dict, not {type(value).__name__}"
    )


def _has_session(result: Checks, plan: dict[str, Any]) -> bool:
    present = "session" in plan
    if not result.record("session_present", present, "the plan has a session", "the plan has no section 'session'"):
        return False
    return isinstance(plan["session"], dict) or _is_mapping(result, "session_type", "session", plan["session"])


def _check_section_names(result: Checks, plan: dict[str, Any]) -> None:
    unknown = sorted(str(name) for name in plan if name not in SECTIONS)
    if unknown:
        bad = f"sections that no session reads: {', '.join(unknown)}; there are: {', '.join(SECTIONS)}"
        result.record("unknown_sections", False, "", bad, "warning")


def _check_required(result: Checks, plan: dict[str, Any]) -> None:
    for name in REQUIRED:
        if name not in plan["session"]:
            result.record(f"session_{name}_present", False, "", f"session has no '{name}'")
            continue
        _check_module(result, f"session.{name}", plan["session"][name])
        more = plan.get(name)
        if more is not None and _is_mapping(result, f"{name}_type", name, more):
            _check_config(result, name, more.get("config"))


def _check_module(result: Checks, path: str, spec: Any) -> None:
    """Check the module of a session: an id, or a mapping."""
    if isinstance(spec, str):
        _check_id(result, path, spec)
    elif isinstance(spec, dict):
        _check_entry(result, path, spec)
    else:
        bad = f"{path} must be a module's id or a dict, not {type(spec).__name__}"
        result.record(f"{path}_type", False, "", bad)


def _check_list(result: Checks, section: str, entries: Any) -> None:
    if entries is None:
        return
    if not isinstance(entries, list):
        bad = f"{section} must be a list of modules, not {type(entries).__name__}"
        result.record(f"{section}_type", False, "", bad)
        return
    for index, entry in enumerate(entries):
        path = f"{section}[{index}]"
        if isinstance(entry, dict) or _is_mapping(result, f"{path}_type", path, entry):
            _check_entry(result, path, entry)


def _check_entry(result: Checks, path: str, entry: dict[str, Any]) -> None:
    if "module" not in entry:
        keys = ", ".join(map(str, entry)) or "nothing"
        bad = f"'module' is missing in {path}, there is only {keys}; write {{'module': 'tool-…'}}"
        result.record(f"{path}_module_required", False, "", bad)
        return
    _check_id(result, path, entry["module"])
    _check_config(result, path, entry.get("config"))
    source = entry.get("source")
    if source is not None and not isinstance(source, str | dict):
        bad = f"the source of {path} must be text or a dict, not {type(source).__name__}"
        result.record(f"{path}_source_type", False, "", bad)
    sandbox = entry.get("sandbox")
    if sandbox is not None and not isinstance(sandbox, bool):
        bad = f"the sandbox of {path} must be true or false, not {type(sandbox).__name__}"
        result.record(f"{path}_sandbox_type", False, "", bad)
    elif sandbox and not path.startswith("tools["):
        bad = f"{path} cannot run in a sandbox; 'sandbox: true' is for tools alone"
        result.record(f"{path}_sandbox_kind", False, "", bad)


def _check_id(result: Checks, path: str, module_id: Any) -> None:
    if not isinstance(module_id, str):
        bad = f"the module of {path} must be a string, not {type(module_id).__name__}"
        result.record(f"{path}_module_type", False, "", bad)
    elif not module_id.strip():
        result.record(f"{path}_module_empty", False, "", f"the module of {path} must not be empty")
    else:
        result.record(f"{path}_module_valid", True, f"{path} is module '{module_id}'", "")


def _check_config(result: Checks, path: str, config: Any) -> None:
    if config is not None and not isinstance(config, dict):
        bad = f"the config of {path} must be a dict, not {type(config).__name__}"
        result.record(f"{path}_config_type", False, "", bad)


def _check_instances(result: Checks, providers: Any) -> None:
    """Require a name for each entry but one of a provider with several entries."""
    entries = [entry for entry in providers if isinstance(entry, dict)] if isinstance(providers, list) else []
    unnamed = Counter(str(entry.get("module")) for entry in entries if not entry.get("instance_id"))
    twice = sorted(module for module, times in unnamed.items() if times > 1)
    if twice:
        bad = f"providers that are listed more than once need an 'instance_id': {', '.join(twice)}"
        result.record("providers_instance_id", False, "", bad)
