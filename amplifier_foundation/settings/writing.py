"""Change a settings file by one value, and nothing else of it."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ..bundles.positions import Positions, format_path, show_file
from ..bundles.problems import has_errors
from ..dicts import get_nested, keys_of, set_nested
from ..files import back_up, to_yaml, write_whole
from ..paths import data_home, make_private
from .layers import checked_layer, read_file
from .places import settings_file
from .problems import InvalidSettings, SettingNotSet, SettingNotWritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ..dicts import Keys
    from .places import Scope

    Edit = Callable[[str, Mapping[str, Any], Keys], str | None]

_NOTHING: Any = object()


def write_setting(scope: Scope, path: str | Sequence[str], value: Any, *, folder: Path | str | None = None) -> Path:
    """Set one value in the file of a scope and return the file; the rest of it stays as it is, comments too.

    A value that is written over several lines can only be replaced by writing the file anew: one without comments is
    (what it was is kept as `<name>.backup`), one with comments is left alone. A new file is its owner's alone.

    Raises `InvalidSettings` when the file is damaged or would be, `SettingNotWritten` when it was left as it is.
    """
    from .editing import with_value

    file, keys = settings_file(scope, folder), keys_of(path)
    _refuse_invalid(_nested(keys, value), file)
    with _alone(file, scope):
        text, before = _read(file)
        keys = _as_written(before, keys, value)
        after = deepcopy(before)
        try:
            set_nested(after, keys, value)
        except TypeError as error:
            raise SettingNotWritten(file, str(error)) from None
        _refuse_invalid(after, file)
        _write(file, text, after, keys, with_value)
    return file


def unset_setting(scope: Scope, path: str | Sequence[str], *, folder: Path | str | None = None) -> Path:
    """Remove one value, and the mappings that it leaves empty, from the file of a scope; return the file.

    What is wrong with other values is no obstacle. Raises `SettingNotSet`, and as `write_setting` does.
    """
    from .editing import without

    file, keys = settings_file(scope, folder), keys_of(path)
    if not file.exists():
        raise SettingNotSet(f"'{format_path(keys)}' is not set: there is no {show_file(file)}")
    with _alone(file, scope):
        text, before = _read(file)
        if get_nested(before, keys, _NOTHING) is _NOTHING:
            raise SettingNotSet(f"'{format_path(keys)}' is not set in {show_file(file)}")
        after = deepcopy(before)
        keys = _remove(after, keys)
        _write(file, text, after, keys, without)
    return file


def _as_written(data: Mapping[str, Any], keys: Keys, value: Any) -> Keys:
    """Return the keys under which the file has the setting: the bundle may be `bundle: {active: name}`."""
    published = keys == ("bundle",) and isinstance(data.get("bundle"), dict) and isinstance(value, str)
    return ("bundle", "active") if published else keys


def _remove(data: dict[str, Any], keys: Keys) -> Keys:
    """Remove a value with what would be empty without it; return the keys of what was removed."""
    while len(keys) > 1 and len(get_nested(data, keys[:-1])) == 1:
        keys = keys[:-1]
    holder = get_nested(data, keys[:-1]) if len(keys) > 1 else data
    del holder[keys[-1]]
    return keys


@contextmanager
def _alone(file: Path, scope: Scope) -> Iterator[None]:
    """Keep other processes from changing the files of a folder at the same time."""
    if scope == "user":
        make_private(data_home())
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unwritable(file, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(file: Path) -> tuple[str, dict[str, Any]]:
    document = read_file(file)
    if document is None:
        return "", {}
    if document.data is None or has_errors(document.problems):
        raise InvalidSettings(document.problems)
    return file.read_bytes().decode("utf-8"), document.data


def _write(file: Path, text: str, after: dict[str, Any], keys: Keys, edit: Edit) -> None:
    """Write the text as `edit` changes it, else all of `after` anew if no comment is lost by that."""
    edited = _edited(text, after, keys, edit)
    if edited is None and "#" in text:
        raise SettingNotWritten(file, f"cannot be changed without losing its comments. {_by_hand(after, keys)}")
    try:
        if edited is None:
            back_up(file)
        write_whole(file, to_yaml(after) if edited is None else edited)
    except OSError as error:
        raise _unwritable(file, error) from error


def _edited(text: str, after: dict[str, Any], keys: Keys, edit: Edit) -> str | None:
    """Return the changed text when it says `after`; None when it does not, whatever the reason."""
    from yaml import YAMLError

    try:
        edited = edit(text, after, keys)
    except YAMLError:
        return None
    return edited if edited is not None and _says(edited, after) else None


def _says(text: str, data: Mapping[str, Any]) -> bool:
    from ..bundles.yaml_reader import Unreadable, read_yaml

    try:
        found, problems = read_yaml(text.removeprefix("\ufeff").replace("\r\n", "\n"), Positions(""))
    except Unreadable:
        return False
    return not problems and json.dumps(found or {}) == json.dumps(data)


def _by_hand(after: Mapping[str, Any], keys: Keys) -> str:
    from .editing import flow

    value = get_nested(after, keys, _NOTHING)
    if value is _NOTHING:
        return f"Remove '{format_path(keys)}' by hand"
    return f"Write this by hand: {flow(_nested(keys, value))[1:-1]}"


def _nested(keys: Keys, value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {}
    set_nested(data, keys, value)
    return data


def _refuse_invalid(data: Mapping[str, Any], file: Path) -> None:
    problems = checked_layer("", data, file.parent, Positions(show_file(file))).problems
    if has_errors(problems):
        raise InvalidSettings(problems)


def _unwritable(file: Path, error: OSError) -> SettingNotWritten:
    return SettingNotWritten(file, f"cannot be written ({error.strerror or error}). Check that you may write there")
