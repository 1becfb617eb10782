"""Change one value of a settings file, and keep the rest."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..documents.dicts import get_nested, keys_of, set_nested
from ..documents.files import back_up, to_yaml, write_whole
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
    added = nest(keys, value)
    _refuse_invalid(added, file)
    layer = check_layer(scope, added, file.parent, Positions(show_file(file)))
    if value is not None and keys[0] not in layer.values:
        raise InvalidSettings([replace(problem, severity="error") for problem in layer.problems])
    with _exclusive(file, scope):
        text, before = _read(file)
        if keys == ("bundle",) and isinstance(before.get("bundle"), dict) and isinstance(value, str):
            keys = ("bundle", "active")  # the spelling of published programs
        after = deepcopy(before)
        try:
            set_nested(after, keys, value)
        except TypeError as error:
            raise SettingNotWritten(file, str(error)) from None
        _refuse_invalid(after, file)
        _write(file, text, after, keys, with_value)
    return file


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
        after = deepcopy(before)
        while len(keys) > 1 and len(get_nested(after, keys[:-1])) == 1:
            keys = keys[:-1]
        del get_nested(after, keys[:-1])[keys[-1]]
        _write(file, text, after, keys, without)
    return file


@contextmanager
def _exclusive(file: Path, scope: Scope) -> Iterator[None]:
    """Lock a folder of settings against changes by other processes."""
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
