"""Keep keys by name: in the system's keyring, else in a private file of the data folder.

`keys.json` lists the names, so that no program without a kept key imports the keyring. A key is found in the
environment first, then among the kept ones.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.errors import AmplifierError
from amplifier_core.utils.secrets import hide_secret

from ..documents.files import locked_folder, write_whole
from ..paths import data_home, make_private, unusable_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Place = Literal["environment", "keyring", "keys.json"]
"""The place of a key."""

SERVICE = "amplifier"
"""The service of kept keys in the keyring; the name of a key is the user."""

logger = logging.getLogger(__name__)


class KeyNotFound(AmplifierError, LookupError):
    """A key is neither in the environment nor kept, or its keyring does not give it."""

    lacks_key = True

    def __init__(self, name: str, cause: str = "") -> None:
        self.name = name
        why = cause or "it is neither in the environment nor kept"
        super().__init__(f"there is no key {name}: {why}. Keep it with: amplifier auth login {name}")


class KeyNotKept(AmplifierError, LookupError):
    """There is no kept key of a name to remove."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no key {name} is kept. See: amplifier auth list")


class KeyRefused(AmplifierError, ValueError):
    """A provider does not accept a key, or could not be asked."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"the key is not kept: {cause}")


class KeysUnreadable(AmplifierError, ValueError):
    """The file of kept keys is damaged, or closed to this user."""

    lacks_key = True

    def __init__(self, file: Path, cause: str | OSError) -> None:
        damaged = f"{file}: {cause}. Repair it, or remove it and keep the keys again: amplifier auth login"
        super().__init__(damaged if isinstance(cause, str) else str(unusable_error(file, cause)))


def keys_file() -> Path:
    """Return the file with the names of the kept keys, and with the keys themselves where no keyring works."""
    return data_home() / "keys.json"


def list_kept() -> dict[str, Place]:
    """Return the place of each kept key by name, without opening the keyring. Raises `KeysUnreadable`."""
    return {name: "keys.json" if "key" in entry else "keyring" for name, entry in _read().items()}


def locate_key(name: str) -> Place | None:
    """Return the place that `find_key` takes a key from. Raises `KeysUnreadable`."""
    return "environment" if os.environ.get(name, "").strip() else list_kept().get(name)


def find_key(name: str) -> str:
    """Return a key, of the environment or a kept one; it is hidden in every text from now on.

    It may wait for a person who opens the keyring. Raises `KeyNotFound` and `KeysUnreadable`.
    """
    key = os.environ.get(name, "").strip()
    if not key:
        entry = _read().get(name)
        if entry is None:
            raise KeyNotFound(name)
        key = str(entry["key"]) if "key" in entry else _read_keyring(name)
    hide_secret(key)
    return key


def keep_key(name: str, key: str) -> Place:
    """Keep a key, instead of an earlier one of the name; return its place. Raises `KeysUnreadable`, `OSError`."""
    hide_secret(key)
    with _changing() as keys:
        keys[name] = {} if _write_keyring(name, key) else {"key": key}
        return "keys.json" if keys[name] else "keyring"


def forget_key(name: str) -> bool:
    """Remove a kept key; return whether there was one. Raises `KeysUnreadable`, `OSError`."""
    with _changing() as keys:
        entry = keys.pop(name, None)
        ring = open_keyring() if entry is not None and "key" not in entry else None
        if ring is not None:
            try:
                ring.delete_password(SERVICE, name)
            except ring.errors.KeyringError as error:
                logger.warning("the keyring does not remove %s: %s", name, error)
        return entry is not None


def open_keyring() -> Any | None:
    """Return the library `keyring`, or None: it is not installed, or finds no keyring or no home on this system."""
    try:
        ring = import_module("keyring")
        import_module("keyring.errors")
        return ring if ring.get_keyring().priority >= 1 else None
    except (ImportError, RuntimeError):
        return None


def _read_keyring(name: str) -> str:
    ring = open_keyring()
    if ring is None:
        raise KeyNotFound(name, "it is in the keyring, and none works here")
    try:
        key = ring.get_password(SERVICE, name)
    except ring.errors.KeyringError as error:
        raise KeyNotFound(name, f"the keyring does not give it ({error})") from None
    if not key:
        raise KeyNotFound(name, "it is no longer in the keyring")
    return str(key)


def _write_keyring(name: str, key: str) -> bool:
    """Write a key into the keyring; return whether it is there."""
    ring = open_keyring()
    if ring is None:
        return False
    try:
        ring.set_password(SERVICE, name, key)
    except ring.errors.KeyringError as error:
        logger.warning("the keyring does not take %s: %s", name, error)
        return False
    return True


def _read() -> dict[str, dict[str, Any]]:
    """Return the entries of the file; make it private if others can read it."""
    file = keys_file()
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
        if mode & 0o077:
            file.chmod(0o600)
            logger.warning("%s: was open to others (mode %04o), is now private (0600)", file, mode)
        data = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise KeysUnreadable(file, error) from None
    except ValueError:
        raise KeysUnreadable(file, "is not JSON") from None
    keys = data.get("keys") if isinstance(data, dict) else None
    if not isinstance(keys, dict) or not all(isinstance(entry, dict) for entry in keys.values()):
        raise KeysUnreadable(file, 'is not {"keys": {NAME: {…}}}')
    return keys


@contextmanager
def _changing() -> Iterator[dict[str, dict[str, Any]]]:
    """Yield the entries to change, and write them at the end; other processes wait meanwhile."""
    with locked_folder(make_private(data_home())):
        keys = _read()
        yield keys
        write_whole(keys_file(), json.dumps({"keys": keys}, indent=2, sort_keys=True) + "\n")
