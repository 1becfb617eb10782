"""What a `bundle.md` declares, as a program handles it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .merge import deep_merge, merge_module_lists, merge_named, merge_sessions
from .paths import kind_of, leaves
from .prepared import PreparedBundle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ..background.config import BackgroundSessionConfig
    from .positions import Place, Positions
    from .problems import Problem
    from .sources import LocalSource

__all__ = ["Bundle", "PreparedBundle", "deep_merge", "merge_module_lists"]


@dataclass(slots=True)
class Bundle:
    """One bundle, or several that were composed. `load_bundle` and `from_dict` make one that is known to be right."""

    name: str
    version: str = "1.0.0"
    description: str = ""
    includes: list[str] = field(default_factory=list)
    """What it is put on top of, as it was written."""
    namespace_root: str | None = None
    session: dict[str, Any] = field(default_factory=dict)
    providers: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    hooks: list[dict[str, Any]] = field(default_factory=list)
    spawn: dict[str, Any] = field(default_factory=dict)
    agents: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Path] = field(default_factory=dict)
    """Files that are part of the system prompt."""
    instruction: str | None = None
    base_path: Path | None = None
    """The folder that its relative paths are relative to."""
    source_base_paths: dict[str, Path] = field(default_factory=dict)
    """What `name:path` is relative to, by name."""
    _pending_context: dict[str, str] = field(default_factory=dict)
    _pending_agents: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """Every file it was made from, with the SHA-256 of its bytes in hex."""
    background_sessions: list[BackgroundSessionConfig] = field(default_factory=list)
    workflows: Any = None
    """Kept as it is written."""
    source_path: Path | None = None
    """Its file; None: a program made it."""
    digest: str = ""
    """The SHA-256 in hex: of its file, of all its files where there are several, of its JSON when a program made it."""
    local_sources: dict[str, LocalSource] = field(default_factory=dict, repr=False)
    """Code that it brings, by the absolute path that its `source` became."""
    places: dict[tuple[str, ...], Place] = field(default_factory=dict, repr=False)
    """Where things stand in their files, for what can only be checked later."""
    problems: list[Problem] = field(default_factory=list)
    """Warnings."""
    layers: list[Bundle] = field(default_factory=list, repr=False, compare=False)
    """What it was composed of, the one that wins last; empty: it is one bundle."""
    positions: Positions | None = field(default=None, repr=False, compare=False)
    """Where its own values stand; None for one that was composed."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], base_path: Path | None = None, *, strict: bool = False) -> Bundle:
        """Return the bundle of front matter that a program made; includes are listed and not loaded.

        Raises `BundleValidationError`.
        """
        import json
        from hashlib import sha256

        from .build import build_bundle
        from .documents import Document
        from .positions import Positions

        digest = sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()
        document = Document(Positions("bundle"), data=deepcopy(dict(data)), digest=digest)
        return build_bundle(document, base_path, strict=strict)

    def compose(self, *others: Bundle) -> Bundle:
        """Return a new bundle with `others` put on top of this one; later ones win.

        Sessions and `spawn` are merged deep, modules by `merge_module_lists`, background sessions by name, contexts
        add up under `bundle:name`; name, version, folder and file are the last one's.
        """
        merged = self
        for other in others:
            merged = _put_on_top(merged, other)
        return merged if others else deepcopy(self)

    def to_mount_plan(self) -> dict[str, Any]:
        """Return what a session is made from, as a copy; empty sections are left out."""
        sections = ("session", "providers", "tools", "hooks", "agents", "spawn")
        return {name: deepcopy(getattr(self, name)) for name in sections if getattr(self, name)}

    async def prepare(
        self,
        install_deps: bool = False,
        source_resolver: Any = None,
        progress_callback: Callable[[str, str], object] | None = None,
        strict: bool = False,
    ) -> PreparedBundle:
        """Return the bundle ready to make sessions.

        Nothing is downloaded or installed, also with `install_deps`, which programs for other kernels say:
        `amplifier bundle install` does that, when somebody asks for it. `source_resolver` finds modules in place of the
        bundle's own resolver, `progress_callback` is called with what is done and with what. With `strict`, raises
        `BundleValidationError` for what is a warning else.
        """
        if progress_callback is not None:
            progress_callback("preparing", self.name)
        if strict:
            from .check import problems_of
            from .problems import InvalidBundle, as_errors

            problems = as_errors(problems_of(self))
            if problems:
                raise InvalidBundle(problems)
        return PreparedBundle.of(self, source_resolver)

    def resolve_context_path(self, name: str) -> Path | None:
        """Return the file of a context by its name, with or without `bundle:`; None when there is none."""
        return self.context.get(name) or self.context.get(f"{self.name}:{name}")

    def resolve_agent_path(self, name: str) -> Path | None:
        """Return the file of an agent by its name, `namespace:name` or `name`; None when there is none."""
        from .agents import agent_path

        owner, _, inside = name.rpartition(":")
        root = self.source_base_paths.get(owner or self.name) or self.base_path
        path = agent_path(root, inside) if root is not None else None
        return path if path is not None and kind_of(path) == "file" else None

    def load_agent_metadata(self) -> None:
        """Read the files of the agents that are included by reference. Raises `BundleError` for a broken one."""
        from .agents import load_or_raise

        load_or_raise(self)

    def resolve_pending_context(self) -> None:
        """Turn references to contexts of other bundles into files, where those bundles are known by now."""
        for name, reference in list(self._pending_context.items()):
            owner, _, inside = reference.partition(":")
            root = self.source_base_paths.get(owner)
            if root is not None and not leaves(root, root / inside):
                self.context[name] = root / inside
                del self._pending_context[name]


def _put_on_top(base: Bundle, top: Bundle) -> Bundle:
    merged = Bundle(
        name=top.name,
        version=top.version,
        description=top.description or base.description,
        includes=list(top.includes),
        namespace_root=top.namespace_root,
        session=merge_sessions(base.session, top.session),
        spawn=deep_merge(base.spawn, top.spawn),
        agents=deepcopy({**base.agents, **top.agents}),
        context={**_prefixed(base), **_prefixed(top)},
        instruction=top.instruction or base.instruction,
        base_path=top.base_path or base.base_path,
        source_base_paths={**top.source_base_paths, **base.source_base_paths},
        background_sessions=merge_named([*base.background_sessions, *top.background_sessions]),
        workflows=deepcopy(base.workflows if top.workflows is None else top.workflows),
        source_path=top.source_path,
        digest=top.digest,
        problems=[*base.problems, *(problem for problem in top.problems if problem not in base.problems)],
    )
    for section in ("providers", "tools", "hooks"):
        setattr(merged, section, merge_module_lists(getattr(base, section), getattr(top, section)))
    for mapping in ("_pending_context", "_pending_agents", "origins", "local_sources", "places"):
        setattr(merged, mapping, {**getattr(base, mapping), **getattr(top, mapping)})
    merged.layers = _last_of_each([*(base.layers or [base]), *(top.layers or [top])])
    merged.resolve_pending_context()
    return merged


def _last_of_each(layers: list[Bundle]) -> list[Bundle]:
    """Return the layers once each: one that is included twice counts where it was put on last."""
    return list({id(layer): layer for layer in reversed(layers)}.values())[::-1]


def _prefixed(bundle: Bundle) -> dict[str, Path]:
    return {name if ":" in name else f"{bundle.name}:{name}": path for name, path in bundle.context.items()}
