"""Register bundles by name, beside the names offered by installed packages."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import BundleLoadError, BundleNotFoundError, NameTaken, SessionConflict
from amplifier_core.frozen import frozen

from ..documents.dicts import known_members
from ..documents.local_paths import is_remote, local_path
from ..documents.positions import show_file
from ..documents.problems import did_you_mean
from ..documents.times import format_time
from ..paths import data_home, make_private, unusable_error
from .load import load_bundle_sync
from .names import NAME_RULE, is_bundle_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from amplifier_core.plugins import Plugins

    from .model import Bundle

FILE = "registry.json"


@frozen
class BundleState:
    """The state of one registered bundle; times are RFC 3339 UTC, `` before the first load."""

    uri: str
    name: str
    version: str = ""
    loaded_at: str = ""
    local_path: str = ""
    includes: list[str] = field(default_factory=list)
    explicitly_requested: bool = False
    """Whether it was registered on request; False for a name added by loading a place."""


@frozen
class UpdateInfo:
    """A registered bundle with a changed source: the commits, or dates, before and after."""

    name: str
    uri: str
    current: str
    available: str


class BundleRegistry:
    """Names of bundles, kept in `registry.json` below `home` (default: the data folder).

    `plugins` add the names offered by their packages; the user's names win. With `strict`, warnings are errors when a
    bundle is loaded. `include_source_resolver` is called with each include as written; its answer is used instead,
    unless None.
    """

    def __init__(
        self,
        home: Path | None = None,
        *,
        plugins: Plugins | None = None,
        strict: bool = False,
        include_source_resolver: Callable[[str], str | None] | None = None,
    ) -> None:
        self._path = (home or data_home()) / FILE
        self._offered = None
        if plugins is not None:
            with suppress(KeyError):  # plugins without the hooks of the foundation
                self._offered = plugins.registry_of("bundle")
        self._strict = strict
        self._include_source_resolver = include_source_resolver
        self._states = self._read_states()
        self._read = dict(self._states)

    def register(self, bundles: Mapping[str, str | Path]) -> None:
        """Register names for places: paths, made absolute, or URLs. Raises `ValueError` for a bad name."""
        for name, place in bundles.items():
            if not is_bundle_name(name):
                raise ValueError(f"'{name}' cannot be a bundle's name: {NAME_RULE}")
            uri = str(place) if is_remote(str(place)) else str(local_path(str(place))[0].absolute())
            self._states[name] = BundleState(uri, name, explicitly_requested=True)

    def unregister(self, name: str) -> bool:
        """Forget a name; return whether it was registered."""
        return self._states.pop(name, None) is not None

    def find(self, name: str) -> str | None:
        """Return the place of a name, or None."""
        return self.names().get(name)

    def list_registered(self) -> list[str]:
        """Return every name, sorted."""
        return sorted(self.names())

    def names(self) -> dict[str, str]:
        """Return every name with its place, for `load_bundle(registry=…)`."""
        return {**self.names_of_packages(), **{name: state.uri for name, state in self._states.items()}}

    def names_of_packages(self) -> dict[str, str]:
        """Return the names offered by packages, with their places, without names of two packages."""
        places: dict[str, str] = {}
        for name in self._offered or ():
            with suppress(NameTaken):
                places[name] = str(self._offered.get(name)) if self._offered else ""
        return places

    def folders_of_packages(self) -> list[str]:
        """Return the folders of the bundles offered by packages."""
        places = [local_path(place)[0] for place in self.names_of_packages().values() if not is_remote(place)]
        return [str(place if place.is_dir() else place.parent) for place in places]

    def get_state(self, name: str | None = None) -> BundleState | dict[str, BundleState] | None:
        """Return the state of one registered bundle, or None; without a name, all states by name."""
        return dict(self._states) if name is None else self._states.get(name)

    async def load(
        self, name_or_uri: str | None = None, *, auto_register: bool = True, auto_include: bool = True
    ) -> Bundle | dict[str, Bundle]:
        """Load one bundle by its name or place; without one, load every registered bundle, by name.

        With `auto_register`, a bundle loaded by its place is registered under its own name unless the name is taken.
        Raises `BundleError`.
        """
        if name_or_uri is not None:
            return await self._load(name_or_uri, auto_register=auto_register, auto_include=auto_include)
        return {name: await self._load(name, auto_include=auto_include) for name in self.list_registered()}

    async def _load(self, wanted: str, *, auto_register: bool = False, auto_include: bool = True) -> Bundle:
        import asyncio

        bundle = await asyncio.to_thread(
            load_bundle_sync,
            wanted,
            auto_include=auto_include,
            registry=self.names(),
            strict=self._strict,
            replace_include=self._include_source_resolver,
        )
        if auto_register and wanted not in self.names() and bundle.name not in self.names() and ":" not in wanted[1:]:
            self.register({bundle.name: wanted})
            self._states[bundle.name] = replace(self._states[bundle.name], explicitly_requested=False)
        name = wanted if wanted in self._states else bundle.name
        if name in self._states:
            self._states[name] = replace(
                self._states[name],
                version=bundle.version,
                loaded_at=format_time(),
                local_path=str(bundle.source_path or ""),
                includes=list(bundle.includes),
            )
        return bundle

    def refresh(self, name: str) -> UpdateInfo | None:
        """Fetch the source of a registered bundle again; return None for an unchanged or a local one.

        Raises `BundleNotFoundError` for an unknown name, and for an unreachable source: the old files stay.
        """
        from .updating import refresh_source

        uri = self.find(name)
        if uri is None:
            hint = did_you_mean(name, self.names()) or "."
            raise BundleNotFoundError(f"no bundle is registered as '{name}'{hint}")
        if not is_remote(uri):
            return None
        found = refresh_source(uri)
        return UpdateInfo(name, found.source, found.before, found.after) if found.has_changed else None

    def save(self) -> None:
        """Write what has changed here into the file, atomically; what others have written meanwhile stays.

        Raises `StoreUnavailable`, and `SessionConflict` for a name that somebody has registered for another place
        meanwhile.
        """
        from ..documents.files import locked_folder, write_whole

        with locked_folder(make_private(self._path.parent)):
            states = self._read_states()
            for name in {*self._read, *self._states}:
                before, ours, theirs = self._read.get(name), self._states.get(name), states.get(name)
                if ours == before:
                    continue
                if ours is None:
                    states.pop(name, None)
                elif _uri(theirs) in (_uri(before), ours.uri):
                    states[name] = ours
                elif _uri(before) != ours.uri:
                    if theirs is not None:
                        raise SessionConflict(
                            name, f"'{name}' stands for {theirs.uri} by now. First: amplifier bundle remove {name}"
                        )
                    states[name] = ours
            text = json.dumps({"bundles": {name: asdict(state) for name, state in sorted(states.items())}}, indent=2)
            write_whole(self._path, text + "\n")
        self._states, self._read = states, dict(states)

    def _read_states(self) -> dict[str, BundleState]:
        try:
            data: Any = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise BundleLoadError(str(unusable_error(self._path, error))) from error
        except ValueError as error:
            file = show_file(self._path)
            raise BundleLoadError(f"{file}: cannot be read ({error}). Repair it, or remove it") from error
        entries = data.get("bundles") if isinstance(data, dict) else None
        states: dict[str, BundleState] = {}
        for name, entry in (entries or {}).items():
            if isinstance(entry, dict):
                states[name] = BundleState(**{"uri": "", **known_members(BundleState, entry), "name": name})
        return states


def _uri(state: BundleState | None) -> str | None:
    return state.uri if state is not None else None
