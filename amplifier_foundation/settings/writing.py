"""Change one value of a settings file, and keep the rest."""

from __future__ import annotations

import errno
import json
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..documents.dicts import get_nested, keys_of, set_nested
from ..documents.files import back_up, locked_folder, to_yaml, write_whole
from ..documents.positions import Positions, format_path, show_file
from ..documents.problems import has_errors
from ..paths import data_home, make_private
from .editing import flow, nest, with_value, without
from .layer import check_layer, read_file
from .places import settings_file
from .problems import InvalidSettings, SettingNotSet, SettingNotWritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ..documents.dicts import Keys
    from .places import Scope

    Edit = Callable[[str, Mapping[str, Any], Keys], str | None]

_NOTHING: Any = object()


def write_setting(scope: Scope, path: str | Sequence[str], value: Any, *, folder: Path | str | None = None) -> Path:
    """Set one value in the file of a scope and return the file; everything else stays, comments included.

    Some values of several lines need a rewrite of the whole file: it happens only without comments, and keeps the old
    content as `<name>.backup`. A new file is private.

    Raises `InvalidSettings` for a file damaged before or after and for a value that would be ignored, and
    `SettingNotWritten` for an unchanged file.
    """
    file, keys = settings_file(scope, folder), keys_of(path)
    _refuse_ignored(scope, file, keys, value)
    with _exclusive(file, scope):
        _set(file, *_read(file), keys, value)
    return file


def change_list(
    scope: Scope,
    path: str | Sequence[str],
    change: Callable[[list[Any]], list[Any]],
    *,
    folder: Path | str | None = None,
) -> tuple[list[Any], list[Any]]:
    """Change a list in the file of a scope while no other process does; return it before and after.

    `change` gets a copy, empty where nothing is set; an empty answer removes the setting, and one that is equal writes
    nothing. Raises the errors of `write_setting`, and `SettingNotWritten` for a value that is not a list.
    """
    file, keys = settings_file(scope, folder), keys_of(path)
    with _exclusive(file, scope):
        text, data = _read(file)
        found = get_nested(data, keys, None)
        if found is not None and not isinstance(found, list):
            raise SettingNotWritten(file, f"'{format_path(keys)}' is not a list. Write one there by hand")
        before = found or []
        after = change(list(before))
        if after and after != before:
            _refuse_ignored(scope, file, keys, after)
            _set(file, text, data, keys, after)
        elif after != before:
            _unset(file, text, data, keys)
    return before, after


def unset_setting(scope: Scope, path: str | Sequence[str], *, folder: Path | str | None = None) -> Path:
    """Remove one value, and mappings empty without it, from the file of a scope; return the file.

    Mistakes in other values are ignored. Raises `SettingNotSet`, and the errors of `write_setting`.
    """
    file, keys = settings_file(scope, folder), keys_of(path)
    if not file.exists():
        raise SettingNotSet(f"'{format_path(keys)}' is not set: there is no {show_file(file)}")
    with _exclusive(file, scope):
        text, before = _read(file)
        if get_nested(before, keys, _NOTHING) is _NOTHING:
            raise SettingNotSet(f"'{format_path(keys)}' is not set in {show_file(file)}")
        _unset(file, text, before, keys)
    return file


def _refuse_ignored(scope: Scope, file: Path, keys: Keys, value: Any) -> None:
    added = nest(keys, value)
    _refuse_invalid(added, file)
    layer = check_layer(scope, added, file.parent, Positions(show_file(file)))
    if value is not None and keys[0] not in layer.values:
        raise InvalidSettings([replace(problem, severity="error") for problem in layer.problems])


def _set(file: Path, text: str, before: dict[str, Any], keys: Keys, value: Any) -> None:
    if keys == ("bundle",) and isinstance(before.get("bundle"), dict) and isinstance(value, str):
        keys = ("bundle", "active")  # the spelling of published programs
    after = deepcopy(before)
    try:
        set_nested(after, keys, value)
    except TypeError as error:
        raise SettingNotWritten(file, str(error)) from None
    _refuse_invalid(after, file)
    _write(file, text, after, keys, with_value)


def _unset(file: Path, text: str, before: dict[str, Any], keys: Keys) -> None:
    """Remove a value, and mappings empty without it."""
    after = deepcopy(before)
    while len(keys) > 1 and len(get_nested(after, keys[:-1])) == 1:
        keys = keys[:-1]
    del get_nested(after, keys[:-1])[keys[-1]]
    _write(file, text, after, keys, without)


@contextmanager
def _exclusive(file: Path, scope: Scope) -> Iterator[None]:
    """Lock a folder of settings against changes by other processes."""
    if scope == "user":
        make_private(data_home())
    with ExitStack() as lock:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            lock.enter_context(locked_folder(file.parent))
        except OSError as error:
            raise _unwritable(file, error) from error
        yield


def _read(file: Path) -> tuple[str, dict[str, Any]]:
    document = read_file(file)
    if document is None:
        return "", {}
    if document.data is None or has_errors(document.problems):
        raise InvalidSettings(document.problems)
    return file.read_bytes().decode("utf-8"), document.data


def _write(file: Path, text: str, after: dict[str, Any], keys: Keys, edit: Edit) -> None:
    """Write the text changed by `edit`, else all of `after`, unless comments would be lost."""
    from yaml import YAMLError

    from ..documents.yaml_reader import Unreadable, read_yaml

    try:
        edited = edit(text, after, keys)
        found, problems = read_yaml((edited or "").replace("\r\n", "\n"), Positions(""))
    except (YAMLError, Unreadable):
        edited = None
    if edited is not None and (problems or json.dumps(found or {}) != json.dumps(after)):
        edited = None  # the edit went wrong
    if edited is None and "#" in text:
        value = get_nested(after, keys, _NOTHING)
        line = "" if value is _NOTHING else flow(nest(keys, value))[1:-1]
        remedy = f"Write this by hand: {line}" if line else f"Remove '{format_path(keys)}' by hand"
        raise SettingNotWritten(file, f"cannot be changed without losing its comments. {remedy}")
    try:
        if edited is None:
            back_up(file)
        write_whole(file, to_yaml(after) if edited is None else edited)
    except OSError as error:
        raise _unwritable(file, error) from error


def _refuse_invalid(data: Mapping[str, Any], file: Path) -> None:
    problems = check_layer("", data, file.parent, Positions(show_file(file))).problems
    if has_errors(problems):
        raise InvalidSettings(problems)


def _unwritable(file: Path, error: OSError) -> SettingNotWritten:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "Free some space and try again" if is_full else "Check that you may write there"
    return SettingNotWritten(file, f"cannot be written ({error.strerror or error}). {remedy}")
