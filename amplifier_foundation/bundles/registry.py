"""Bundles by name: those a user registered, and those that installed packages bring."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import BundleLoadError, BundleNotFoundError, NameTaken

from ..paths import data_home, make_private
from .load import load_bundle
from .names import is_bundle_name
from .paths import is_remote, local_path
from .positions import show_file
from .problems import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amplifier_core.plugins import Plugins

    from .model import Bundle

FILE = "registry.json"


@dataclass(frozen=True, slots=True)
class BundleState:
    """What is known of one registered bundle; times are RFC 3339 UTC, empty before it was loaded."""

    uri: str
    name: str
    version: str = ""
    loaded_at: str = ""
    local_path: str = ""
    includes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class UpdateInfo:
    """A registered bundle whose source was fetched anew: the commits, or dates, before and after."""

    name: str
    uri: str
    current: str
    available: str


class BundleRegistry:
    """Names of bundles, kept in `registry.json` below `home` (default: the data folder).

    `plugins` add the names that their packages offer; a name that the user registered wins over those.
    """

    def __init__(self, home: Path | None = None, *, plugins: Plugins | None = None) -> None:
        self._path = (home or data_home()) / FILE
        self._offered = plugins.offered("bundle") if plugins is not None else None
        self._states = _read(self._path)

    def register(self, bundles: Mapping[str, str | Path]) -> None:
        """Have names stand for places: paths, which become absolute, or URLs. Raises `ValueError` for a bad name."""
        for name, place in bundles.items():
            if not is_bundle_name(name):
                raise ValueError(f"'{name}' cannot be a bundle's name: 1 to 128 characters, without ':', '/' and '\\'")
            uri = str(place) if is_remote(str(place)) else str(local_path(str(place))[0].absolute())
            self._states[name] = BundleState(uri, name)

    def unregister(self, name: str) -> bool:
        """Forget a name; return whether it was registered here."""
        return self._states.pop(name, None) is not None

    def find(self, name: str) -> str | None:
        """Return the place that a name stands for, or None."""
        return self.names().get(name)

    def list_registered(self) -> list[str]:
        """Return every name, sorted."""
        return sorted(self.names())

    def names(self) -> dict[str, str]:
        """Return every name with its place, as `load_bundle(registry=…)` takes them."""
        return {**self.offered(), **{name: state.uri for name, state in self._states.items()}}

    def offered(self) -> dict[str, str]:
        """Return the names that packages offer, with their places; none that two of them claim."""
        places: dict[str, str] = {}
        for name in self._offered or ():
            with suppress(NameTaken):
                places[name] = str(self._offered.get(name)) if self._offered else ""
        return places

    def get_state(self, name: str | None = None) -> BundleState | dict[str, BundleState] | None:
        """Return what is known of one registered bundle (None: nothing), or of all by name."""
        return dict(self._states) if name is None else self._states.get(name)

    async def load(
        self, name_or_uri: str | None = None, *, auto_register: bool = True, auto_include: bool = True
    ) -> Bundle | dict[str, Bundle]:
        """Load one bundle by its name or place, or, without one, every registered bundle, by name.

        With `auto_register`, a bundle that was loaded by its place is registered under its own name unless that is
        taken. Raises `BundleError`.
        """
        if name_or_uri is not None:
            return await self._load(name_or_uri, auto_register=auto_register, auto_include=auto_include)
        return {name: await self._load(name, auto_include=auto_include) for name in self.list_registered()}

    async def _load(self, wanted: str, *, auto_register: bool = False, auto_include: bool = True) -> Bundle:
        bundle = await load_bundle(wanted, registry=self.names(), auto_include=auto_include)
        if auto_register and wanted not in self.names() and bundle.name not in self.names() and ":" not in wanted[1:]:
            self.register({bundle.name: wanted})
        if wanted in self._states or bundle.name in self._states:
            name = wanted if wanted in self._states else bundle.name
            self._states[name] = _loaded(self._states[name], bundle)
        return bundle

    def refresh(self, name: str) -> UpdateInfo | None:
        """Fetch the source of a registered bundle anew; None when it is the same, or is no source that changes.

        Raises `BundleNotFoundError` for an unknown name, and when the source cannot be had: what was here stays.
        """
        from .updating import refresh_source

        uri = self.find(name)
        if uri is None:
            hint = did_you_mean(name, self.names()) or "."
            raise BundleNotFoundError(f"no bundle is registered as '{name}'{hint}")
        if not is_remote(uri):
            return None
        found = refresh_source(uri)
        return UpdateInfo(name, found.source, found.before, found.after) if found.changed else None

    def save(self) -> None:
        """Write the file, whole or not at all. Raises `StoreUnavailable`."""
        make_private(self._path.parent)
        fresh = self._path.with_suffix(".json.new")
        text = json.dumps({"bundles": {name: asdict(state) for name, state in sorted(self._states.items())}}, indent=2)
        fresh.touch(0o600)
        fresh.write_text(text + "\n", encoding="utf-8")
        fresh.replace(self._path)


def _loaded(state: BundleState, bundle: Bundle) -> BundleState:
    return replace(
        state,
        version=bundle.version,
        loaded_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        local_path=str(bundle.source_path or ""),
        includes=list(bundle.includes),
    )


def _read(path: Path) -> dict[str, BundleState]:
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BundleLoadError(f"{show_file(path)}: cannot be read ({error}). Mend it, or remove it") from error
    entries = data.get("bundles") if isinstance(data, dict) else None
    return {name: _state(name, entry) for name, entry in (entries or {}).items() if isinstance(entry, dict)}


def _state(name: str, entry: dict[str, Any]) -> BundleState:
    known = {each.name for each in fields(BundleState)}
    return BundleState(**{"uri": "", **{key: value for key, value in entry.items() if key in known}, "name": name})
