"""Cache values by key: in memory, and in a folder."""

from __future__ import annotations

import json
import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from amplifier_core.errors import StoreUnavailable
from amplifier_core.json_values import to_json

from ..paths import make_private


class SimpleCache:
    """Values of any kind, in memory."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        """Return the value of `key`, or None."""
        return self._values.get(key)

    def set(self, key: str, value: Any) -> None:
        """Keep `value` under `key`."""
        self._values[key] = value

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()


class DiskCache:
    """JSON values, one file per key in `folder`; several processes may share it."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).expanduser()

    def get(self, key: str) -> Any:
        """Return the value of `key`, or None; a damaged file counts as missing."""
        try:
            kept = json.loads(self._path(key).read_text(encoding="utf-8", errors="surrogatepass"))
        except (OSError, ValueError, RecursionError):
            return None
        return kept.get("value") if isinstance(kept, dict) and kept.get("key") == key else None

    def set(self, key: str, value: Any) -> None:
        """Keep `value` under `key`, atomically. Raises `TypeError` for other values than JSON's, `StoreUnavailable`."""
        text = to_json({"key": key, "value": value})
        path = self._path(key)
        written = make_private(self.folder) / f"{path.stem}.{os.urandom(8).hex()}"
        try:
            written.write_text(text, encoding="utf-8", errors="surrogatepass")
            written.replace(path)
        except OSError as error:
            written.unlink(missing_ok=True)
            raise StoreUnavailable(self.folder, f"cannot be written ({error.strerror}). Free some space") from error

    def clear(self) -> None:
        """Remove every value. Raises `StoreUnavailable`."""
        try:
            for path in self.folder.glob("*.json"):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreUnavailable(self.folder, f"cannot be cleared ({error.strerror}). Make it writable") from error

    def _path(self, key: str) -> Path:
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", key)[-40:].strip(".-") or "value"
        return self.folder / f"{readable}-{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.json"
