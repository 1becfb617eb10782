"""Write a secret in the forms in which texts hold it."""

from __future__ import annotations

import re
from binascii import b2a_base64
from json import dumps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def encode_secret(value: str) -> Iterator[str]:
    """Yield a value raw, in JSON, URL-quoted, in hexadecimal, and in base64 at each of its three alignments."""
    raw = value.encode("utf-8", "surrogateescape")
    yield value
    for plain in (value, dumps(value)[1:-1]):
        escaped = dumps(plain)[1:-1]
        yield from (escaped, dumps(plain, ensure_ascii=False)[1:-1], escaped.replace("/", "\\/"))
    for kept in (rb"[\w.~-]", rb"[\w.~/-]"):
        quoted = "".join(chr(each) if re.match(kept, bytes((each,))) else f"%{each:02X}" for each in raw)
        yield from (quoted, quoted.replace("%20", "+"), re.sub("%..", lambda found: found[0].lower(), quoted))
    yield from (raw.hex(), raw.hex().upper())
    for shift in range(3):
        encoded = b2a_base64(b"\0" * shift + raw, newline=False).decode()
        whole = encoded[(0, 2, 3)[shift] : (shift + len(raw)) * 8 // 6]  # what the neighbours change is left out
        yield from (whole, whole.replace("+", "-").replace("/", "_"))
