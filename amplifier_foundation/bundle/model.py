"""Define `Bundle`, the content of a `bundle.md` for programs."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import slotted

from ..documents.dicts import deep_merge
from ..documents.local_paths import kind_of, leaves
from .merge import merge_module_lists
from .sections import SECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from ..documents.positions import Place, Positions
    from ..documents.problems import Problem
    from .background_config import BackgroundSessionConfig
    from .prepared import PreparedBundle
    from .sources import LocalSource

__all__ = ["Bundle", "PreparedBundle", "deep_merge", "merge_module_lists"]


def __getattr__(name: str) -> object:
    """Import `PreparedBundle` at its first use: only sessions need it."""
    if name != "PreparedBundle":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .prepared import PreparedBundle

    return PreparedBundle


@slotted
class Bundle:
    """One bundle, or several composed ones. `load_bundle` and `from_dict` return valid ones.

    Background sessions may be given as mappings; they are validated and become `BackgroundSessionConfig`s. Raises
    `BundleValidationError` for invalid ones.
    """

    name: str
    version: str = "1.0.0"
    description: str = ""
    includes: list[str] = field(default_factory=list)
    """The included bundles, as written."""
    namespace_root: str | None = None
    session: dict[str, Any] = field(default_factory=dict)
    providers: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    hooks: list[dict[str, Any]] = field(default_factory=list)
    spawn: dict[str, Any] = field(default_factory=dict)
    budget: dict[str, Any] = field(default_factory=dict)
    """The budget of all its sessions together."""
    permissions: dict[str, Any] = field(default_factory=dict)
    """Rules that its sessions cannot loosen."""
    agents: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Path] = field(default_factory=dict)
    """Files of the system prompt."""
    instruction: str | None = None
    base_path: Path | None = None
    """The folder for its relative paths."""
    source_base_paths: dict[str, Path] = field(default_factory=dict)
    """The folder for `name:path`, by name."""
    _pending_context: dict[str, str] = field(default_factory=dict)
    _pending_agents: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """All its files, with the SHA-256 of their bytes in hex."""
    background_sessions: list[BackgroundSessionConfig] = field(default_factory=list)
    workflows: Any = None
    """Kept as written."""
    source_path: Path | None = None
    """Its file; None for a bundle made by a program."""
    digest: str = ""
    """The SHA-256 in hex: of its file, of all its files where there are several, of its JSON when a program made it."""
    local_sources: dict[str, LocalSource] = field(default_factory=dict, repr=False)
    """Code in the bundle, by the absolute path in `source`."""
    places: dict[tuple[str, ...], Place] = field(default_factory=dict, repr=False)
    """Positions in its files, for later checks."""
    problems: list[Problem] = field(default_factory=list)
    """Warnings."""
    layers: list[Bundle] = field(default_factory=list, repr=False, compare=False)
    """The composed bundles, the winning one last; empty for one bundle."""
    positions: Positions | None = field(default=None, repr=False, compare=False)
    """Positions of its own values; None for a composed bundle."""
    guard: Any = field(default=None, repr=False, compare=False)
    """The `Guard` asked before its code runs; None: a program made or loaded it, and has decided."""

    def __post_init__(self) -> None:
        if any(isinstance(each, dict) for each in self.background_sessions):
            from .build import make_absolute
            from .validation import read_background_sessions

            configs = read_background_sessions(self.background_sessions)
            self.background_sessions = [make_absolute(config, self) for config in configs]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], base_path: Path | None = None, *, strict: bool = False) -> Bundle:
        """Return the bundle of front matter made by a program; includes are listed, not loaded.

        Raises `BundleValidationError`.
        """
        import json
        from hashlib import sha256

        from ..documents.document import Document
        from ..documents.positions import Positions
        from .build import build_bundle

        digest = sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()
        document = Document(Positions("bundle"), data=deepcopy(dict(data)), digest=digest)
        return build_bundle(document, base_path, strict=strict)

    def compose(self, *others: Bundle) -> Bundle:
        """Return a new bundle with `others` on top of this one; later ones win.

        Sessions and `spawn` are merged deep, modules by `merge_module_lists`, background sessions by name, contexts
        add up under `bundle:name`; name, version, folder and file are the last one's.
        """
        if not others:
            return deepcopy(self)
        bundles, top = (self, *others), others[-1]
        values = {each.name: [getattr(bundle, each.name) for bundle in bundles] for each in SECTIONS}
        values["context"] = [{}]  # below: a name may be that of a file only with the bundles so far
        merged = Bundle(
            name=top.name,
            version=top.version,
            description=_last(bundles, "description"),
            namespace_root=top.namespace_root,
            base_path=_last(bundles, "base_path"),
            source_path=top.source_path,
            digest=top.digest,
            guard=_last(bundles, "guard"),
            **{each.name: each.merge(values[each.name]) for each in SECTIONS},
        )
        for mapping in ("origins", "local_sources", "places"):
            setattr(merged, mapping, _join(getattr(each, mapping) for each in bundles))
        layers = [layer for bundle in bundles for layer in bundle.layers or [bundle]]
        merged.layers = list({id(layer): layer for layer in reversed(layers)}.values())[::-1]  # each at its last place
        merged._join_problems(bundles)
        merged._join_contexts(bundles)
        return merged

    def _join_problems(self, bundles: Sequence[Bundle]) -> None:
        """Take the warnings of all; one of two bundles is that of the first."""
        known: set[Problem] = set()
        for bundle in bundles:
            self.problems += [problem for problem in bundle.problems if problem not in known]
            known.update(bundle.problems)

    def _join_contexts(self, bundles: Sequence[Bundle]) -> None:
        """Take the context files of all, and find those that one names in another as soon as both are there."""
        self.context = dict(bundles[0].context)
        self._pending_context = dict(bundles[0]._pending_context)
        self._pending_agents = _join(each._pending_agents for each in bundles)
        self.source_base_paths = dict(bundles[0].source_base_paths)
        for below, top in pairwise(bundles):
            self.context = {**_full_names(self.context, below.name), **_full_names(top.context, top.name)}
            self._pending_context.update(top._pending_context)
            self.source_base_paths = {**top.source_base_paths, **self.source_base_paths}
            self.resolve_pending_context()

    def to_mount_plan(self) -> dict[str, Any]:
        """Return a copy of the sections for a session, without empty ones."""
        sections = {each.name: getattr(self, each.name) for each in SECTIONS if each.is_mounted}
        return {name: deepcopy(value) for name, value in sections.items() if value}

    async def prepare(
        self,
        install_deps: bool = False,
        source_resolver: Any = None,
        progress_callback: Callable[[str, str], object] | None = None,
        strict: bool = False,
    ) -> PreparedBundle:
        """Return the bundle ready to make sessions.

        Nothing is downloaded or installed, even with `install_deps`, a parameter of programs for other kernels:
        `amplifier bundle install` installs on request. `source_resolver` replaces the bundle's own resolver of modules;
        `progress_callback` is called with an action and its subject. With `strict`, warnings raise
        `BundleValidationError`.
        """
        if progress_callback is not None:
            progress_callback("preparing", self.name)
        if strict:
            from ..documents.problems import InvalidBundle, as_errors
            from .check import problems_of

            problems = as_errors(problems_of(self))
            if problems:
                raise InvalidBundle(problems)
        from .prepared import PreparedBundle

        return PreparedBundle.of(self, source_resolver)

    def has_tool(self, module: str) -> bool:
        """Return whether its sessions, or those of its agents, have a tool of this module."""
        agents = [each for each in self.agents.values() if isinstance(each, dict)]
        tools = [*self.tools, *(tool for agent in agents for tool in agent.get("tools") or ())]
        return any(isinstance(tool, dict) and tool.get("module") == module for tool in tools)

    def resolve_context_path(self, name: str) -> Path | None:
        """Return the file of a context by its name, with or without `bundle:`, or None."""
        return self.context.get(name) or self.context.get(f"{self.name}:{name}")

    def resolve_agent_path(self, name: str) -> Path | None:
        """Return the file of an agent by its name, `namespace:name` or `name`, or None."""
        from .agents import agent_path

        owner, _, inside = name.rpartition(":")
        root = self.source_base_paths.get(owner or self.name) or self.base_path
        path = agent_path(root, inside) if root is not None else None
        return path if path is not None and kind_of(path) == "file" else None

    def load_agent_metadata(self) -> None:
        """Read the files of agents included by reference. Raises `BundleError` for a broken one."""
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


def _last(bundles: Sequence[Bundle], name: str) -> Any:
    """Return the field of the last bundle that has one."""
    return next((value for each in reversed(bundles) if (value := getattr(each, name))), getattr(bundles[0], name))


def _join(mappings: Iterable[Mapping[Any, Any]]) -> dict[Any, Any]:
    """Return the keys of all; a later value wins."""
    return {key: value for mapping in mappings for key, value in mapping.items()}


def _full_names(context: Mapping[str, Path], bundle: str) -> dict[str, Path]:
    """Return the context files of a bundle by their names in other bundles, `bundle:name`."""
    return {name if ":" in name else f"{bundle}:{name}": path for name, path in context.items()}
