"""Load bundles, and use the settings of projects, only as the person has trusted them.

A bundle is trusted at its place, with its owner and the content of every file that runs or names code. Any change is
asked about again. Programs that load a bundle by themselves have decided; what a session names is checked all the same.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError
from amplifier_core.source_files import check_sources

from ..bundle.sources import find_bundle_commands
from ..paths import BUNDLE_FILES, find_bundle_file
from .trust_files import find_code, is_below, path_of
from .trust_ledger import Entry, Ledger, TrustUnreadable, changed_files, find_problem, find_whole
from .trust_texts import find_strange_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..bundle.load import LeaveOut
    from ..bundle.model import Bundle
    from ..settings import Settings
    from .trust_content import Content

VARIABLE = "AMPLIFIER_TRUST"
"""With the value 1, everything is trusted without a question, and nothing is remembered."""


class NotTrusted(AmplifierError, PermissionError):
    """A bundle, or a project's settings, would run code that nobody has trusted, or that has changed since.

    `content` is what was asked for, None where only its code was looked at; `changed` are the paths that differ from
    what was trusted, empty when nothing was.
    """

    def __init__(self, place: str, changed: Sequence[str] = (), content: Content | None = None) -> None:
        self.place, self.changed, self.content = place, tuple(changed), content
        from ..documents.safe_text import shell_word

        shown, target = show_place(place), shell_word(target_of(place))
        names = ", ".join(_brief(each, place) for each in self.changed[:3])
        names += f" and {len(self.changed) - 3} more" if len(self.changed) > 3 else ""
        remedy = "Look at it, and trust it, with"
        if not self.changed:
            text = f"{shown} is not trusted, and nothing of it runs"
        elif any(os.path.lexists(each) for each in self.changed):
            text = f"{shown} {self.problem} ({names})"
        else:
            text = f"{names} is gone, which {shown} uses"
            remedy = f"Bring it back; where {shown} no longer uses it, trust {shown} with"
        super().__init__(f"{text}. {remedy}: amplifier trust {target}")

    @property
    def problem(self) -> str:
        """What is wrong with the changed files, as the end of a sentence about the place."""
        with suppress(TrustUnreadable):
            entry = Ledger().find(self.place)
            if entry is not None and entry.files.keys().isdisjoint(self.changed):
                return "uses files that were not trusted with it"
        return "has changed since it was trusted"

    @property
    def is_taken_back(self) -> bool:
        """Whether a person trusted it, and took that back."""
        with suppress(TrustUnreadable):
            entry = Ledger().find(self.place)
            return entry is not None and not entry.files
        return False


def is_checked() -> bool:
    """Return whether trust is asked for at all: not with `AMPLIFIER_TRUST=1`, unless a session set it."""
    if os.environ.get(VARIABLE) != "1":
        return True
    from .session_mark import is_within_session

    return is_within_session()


def load_trusted(
    source: str | Path,
    *,
    names: Mapping[str, str | Path] | None = None,
    installed: Sequence[str] = (),
    fetches: bool = True,
    checks: bool | None = None,
) -> Bundle:
    """Load a bundle as `load_bundle_sync` does, and have all its code checked whenever it is imported.

    `installed` are the folders of packages: who installed them trusts them. Without `fetches`, a bundle that is not in
    the cache is refused. Nothing that an untrusted bundle names is fetched or run. `checks` is by default what
    `is_checked` says. Raises `NotTrusted`, `TrustUnreadable` and the errors of `load_bundle`.
    """
    from ..bundle.load import load_bundle_sync
    from ..bundle.references import find_bundle

    names = names or {}
    if not (is_checked() if checks is None else checks):
        with suppress(AmplifierError, OSError):
            Ledger().begin()  # sessions of now say nothing about trust
        return load_bundle_sync(source, registry=names)
    if not fetches:
        _refuse_fetching(str(source), names)
    place, ledger = path_of(find_bundle(source, names=names)), Ledger()
    roots = tuple(os.path.realpath(each) for each in installed)
    if is_below(place, roots):
        return load_bundle_sync(source, registry=names)
    problem, trusted = _find_trust(ledger, place, names)
    if problem is not None and not trusted:
        raise NotTrusted(place, problem, inspect_bundle(place, names, roots))
    bundle = load_bundle_sync(source, registry=names)
    guard = Guard(ledger, (trusted,), roots)
    if changed := guard.find_strange(bundle, trusted):
        from .trust_content import bundle_content

        raise NotTrusted(place, changed, bundle_content(bundle, place, names, roots))
    bundle.guard = guard
    return bundle


def inspect_bundle(place: str, names: Mapping[str, Any], installed: Sequence[str] = ()) -> Content:
    """Return what a bundle would run; nothing is run, and nothing fetched. Raises `BundleError`."""
    from ..bundle.load import read_bundle
    from .trust_content import bundle_content, without_fetching

    unfetched: list[str] = []
    bundle = read_bundle(Path(place), registry=names, leave_out=without_fetching(names, unfetched))
    content = bundle_content(bundle, place, names, installed)
    content.lines += [("fetches", each) for each in unfetched]
    return content


def find_left_out(source: str, names: Mapping[str, Any], installed: Sequence[str] = ()) -> LeaveOut | None:
    """Return what `read_bundle` needs to leave out the includes of an untrusted bundle that would have to be fetched.

    None: the bundle is trusted. Raises `BundleError` and `TrustUnreadable`.
    """
    if not is_checked():
        return None
    from ..bundle.references import find_bundle
    from .trust_content import without_fetching

    place = path_of(find_bundle(source, names=names))
    is_trusted = is_below(place, [os.path.realpath(each) for each in installed])
    return None if is_trusted or _find_trust(Ledger(), place, names)[1] else without_fetching(names, [])


def _find_trust(ledger: Ledger, place: str, names: Mapping[str, Any]) -> tuple[list[str] | None, str]:
    """Return what `find_problem` does, and the place by which a bundle is trusted: its own or another; '' for none."""
    if (problem := find_problem(ledger, place)) is None:
        return None, place
    from .trust_content import runs_bundle

    return problem, find_whole(ledger, place, partial(runs_bundle, names))


def trust_content(content: Content) -> None:
    """Trust a content from now on, as it was when it was looked at. Raises the errors of `Ledger.put`."""
    import time

    Ledger().put(content.place, Entry(content.uid, content.files, content.folders, time.time()))


def trust_written(file: Path, written: Iterable[Path]) -> None:
    """Trust a bundle that this program wrote itself, unless it runs other files than those `written`.

    Within a session, nothing is trusted.
    """
    from .session_mark import is_within_session

    if is_checked() and not is_within_session():
        content = inspect_bundle(path_of(file), {})
        if set(content.files) <= {path_of(each) for each in written}:
            trust_content(content)


class Guard:
    """Checks the code of one bundle whenever it is imported, and the bundles that it brings along.

    `places` are the bundle's and that of the project's settings, `own` is code in the person's own settings.
    """

    def __init__(
        self, ledger: Ledger, places: tuple[str, ...], installed: tuple[str, ...] = (), own: tuple[str, ...] = ()
    ) -> None:
        self.ledger, self.places, self.installed, self.own = ledger, places, installed, own

    def check_code(self, path: Path) -> None:
        """Raise `NotTrusted` unless the code at `path` is what was trusted, here or at another place.

        A resumed session may have code of the bundle above it.
        """
        source = path_of(path)
        if source in self.own or is_below(source, self.installed):
            return
        changed: list[str] = []
        for place in dict.fromkeys((*self.places, *self.ledger.places())):
            entry = self.ledger.find(place)
            if entry is None or (source not in entry.files and os.path.realpath(path) not in entry.folders):
                continue
            changed = _find_changed_code(entry, path)
            if not changed:
                check_sources(str(path), partial(_check_source, self.ledger, place, str(path)))
                return
        raise NotTrusted(self.places[0], changed or [source])

    def check_bundle(self, bundle: Bundle) -> None:
        """Raise `NotTrusted` unless a bundle is part of what was trusted, or was trusted for itself."""
        own = path_of(bundle.source_path) if bundle.source_path is not None else ""
        if is_below(own, self.installed):
            return
        strange = [self.find_strange(bundle, place) for place in (*self.places, own)]
        if all(strange):
            raise NotTrusted(own if self.ledger.find(own) is not None else self.places[0], strange[0])
        bundle.guard = Guard(self.ledger, (*self.places, own), self.installed, self.own)

    def checks_texts(self, path: str) -> bool:
        """Return whether the files in a folder of the bundle count as they were trusted alone."""
        return not is_below(path_of(path), self.installed)

    def find_strange(self, bundle: Bundle, place: str) -> list[str]:
        """Return the files of a loaded bundle that are not part of what was trusted at `place`, as they were read."""
        entry = self.ledger.find(place)
        files = entry.files if entry is not None else {}
        strange = []
        for path, digest in bundle.origins.items():
            known = path_of(path)
            if not is_below(known, self.installed) and (known not in files or files[known].digest != digest):
                strange.append(known)
        for source in bundle.local_sources.values():
            known = path_of(source.path)
            is_known = known in files or (entry is not None and os.path.realpath(source.path) in entry.folders)
            if not is_known and known not in self.own and not is_below(known, self.installed):
                strange.append(known)
        strange += (each for each in find_strange_texts(bundle, files) if not is_below(each, self.installed))
        if any(find_bundle_commands(bundle)):
            from .trust_content import find_bundle_scripts

            strange += [each for each in find_bundle_scripts(bundle) if each not in files]
        return strange


def _check_source(ledger: Ledger, place: str, code: str, path: str, source: bytes) -> None:
    """Raise `NotTrusted` unless the bytes of a file at or below `code`, to be imported now, are what was trusted."""
    real = os.path.realpath(code)
    below = path.removeprefix(code if is_below(path, (code,)) else real)
    known = real + below if below else path_of(path)
    if sha256(source).hexdigest() not in ledger.digests_of(known):
        raise NotTrusted(place, [known])


def check_settings(settings: Settings, folder: Path | None = None, *, checks: bool | None = None) -> NotTrusted | None:
    """Return the error if the settings of a project matter and are not trusted, else None. Raises `TrustUnreadable`."""
    layers = _project_layers(settings)
    if not layers or not (is_checked() if checks is None else checks):
        return None
    from ..settings.places import project_folder, settings_files
    from .trust_content import settings_content

    project = project_folder(folder)
    if project is None:
        return None
    place, ledger = settings_place(project), Ledger()
    files = [file for scope, file in settings_files(folder).items() if scope != "user" and file.exists()]
    problem = find_problem(ledger, place)
    if problem is None:
        entry = ledger.find(place)
        problem = [] if entry is None else [known for known in map(path_of, files) if known not in entry.files]
        if not problem:
            return None
    return NotTrusted(place, problem, settings_content(layers, place, files))


@contextmanager
def changing_settings() -> Iterator[None]:
    """Keep the settings of this project trusted while the person changes them by a command; no session does."""
    from ..settings import read_settings
    from .session_mark import is_within_session

    was_trusted = False
    with suppress(AmplifierError):
        was_trusted = check_settings(read_settings(), checks=True) is None and not is_within_session()
    yield
    with suppress(AmplifierError):
        error = check_settings(read_settings(), checks=True) if was_trusted else None
        if error is not None and error.content is not None:
            trust_content(error.content)


def settings_place(project: Path) -> str:
    """Return the place of a project's settings."""
    from ..settings.places import FOLDER

    return os.path.realpath(project / FOLDER)


def without_project(settings: Settings) -> Settings:
    """Return the settings without what matters in those of the project."""
    from dataclasses import replace

    from ..documents.dicts import deep_merge
    from .trust_content import MATTERS

    theirs = {id(layer) for layer in _project_layers(settings)}
    layers = tuple(
        replace(layer, values={key: value for key, value in layer.values.items() if key not in MATTERS})
        if id(layer) in theirs
        else layer
        for layer in settings.layers
    )
    values: dict[str, Any] = {}
    for layer in layers:
        values = deep_merge(values, layer.values)
    return replace(settings, values=values, layers=layers)


def extend_guard(bundle: Bundle, settings: Settings, folder: Path | None = None) -> None:
    """Have a bundle's guard accept the code that the settings put in place of modules."""
    guard = bundle.guard
    if guard is None or not settings.get("overrides"):
        return
    from ..settings.places import project_folder
    from .policies import OWN_SOURCES
    from .trust_content import override_sources

    own = tuple(path_of(each) for each in override_sources([x for x in settings.layers if x.source in OWN_SOURCES]))
    project = project_folder(folder)
    places = guard.places if project is None else (*guard.places, settings_place(project))
    bundle.guard = Guard(guard.ledger, places, guard.installed, own)


def show_place(place: str) -> str:
    """Return a place for people: the address of a fetched bundle, else its path."""
    from ..documents.positions import show_file

    return address_of(place) or show_file(Path(place))


def target_of(place: str) -> str:
    """Return what to name to `amplifier trust` for a place."""
    path = Path(place)
    stands_for_folder = path == find_bundle_file(path.parent) or path.name in (".amplifier", ".mcp.json")
    return address_of(place) or (str(path.parent) if stands_for_folder else place)


def _find_changed_code(entry: Entry, source: Path) -> list[str]:
    present = set(find_code(source))
    roots = (path_of(source), os.path.realpath(source))
    known = {path: seen for path, seen in entry.files.items() if path in present or is_below(path, roots)}
    return [*changed_files(entry._replace(files=known))[0], *(path for path in sorted(present) if path not in known)]


def _refuse_fetching(source: str, names: Mapping[str, str | Path]) -> None:
    from ..bundle.references import remote_place
    from ..sources import default_cache

    place = remote_place(source, None, names)
    if place is not None and default_cache().get(place) is None:
        raise NotTrusted(place)


def _project_layers(settings: Settings) -> list[Any]:
    from .trust_content import MATTERS

    found = [layer for layer in settings.layers if layer.source in ("project", "local")]
    return [layer for layer in found if any(layer.values.get(key) for key in MATTERS)]


def address_of(place: str) -> str:
    """Return the address of a bundle in the cache of fetched ones; '' for any other place."""
    from ..sources import default_cache
    from ..sources.uris import parse_uri, redact_uris

    if "://" in place:
        return redact_uris(place)
    folder = os.path.realpath(default_cache().folder)
    if not place.startswith(folder + os.sep):
        return ""
    name, _, inside = place[len(folder) + 1 :].partition(os.sep)
    entry = next((each for each in default_cache().entries() if each.path is not None and each.path.name == name), None)
    if entry is None:
        return ""
    folder, file = os.path.split("" if parse_uri(entry.uri).is_http else inside)
    inside = folder if file in BUNDLE_FILES else f"{folder}/{file}".strip("/")
    return f"{entry.uri}#subdirectory={inside}" if inside else entry.uri


def _brief(path: str, place: str) -> str:
    folder = str(Path(place).parent)
    return os.path.relpath(path, folder) if is_below(path, (folder,)) else path
