"""Show what a change of a file would replace, as a unified diff for a person."""

from __future__ import annotations

from hashlib import sha256

LARGEST = 512 * 1024
"""Bytes of a file, before or after, whose diff is shown."""


def show_change(path: str, before: bytes | None, after: bytes) -> str:
    """Return a unified diff. Its first line has the digest of the old content: another one makes another text."""
    if before is None:
        head = f"{path}: a new file of {len(after)} bytes"
    else:
        head = f"{path}: {len(before)} bytes, sha256 {sha256(before).hexdigest()[:32]}, become {len(after)} bytes"
    if before == after:
        return f"{head}\nNothing changes."
    texts = [_read(before or b""), _read(after)]
    if None in texts:
        return f"{head}\nThe content is not text, or too long to be shown."
    from amplifier_core.previews import compare_lines

    old, new = (text.splitlines() for text in texts if text is not None)
    return "\n".join([head, *compare_lines(old, new, "/dev/null" if before is None else f"a/{path}", f"b/{path}")])


def _read(data: bytes) -> str | None:
    try:
        return data.decode() if len(data) <= LARGEST and b"\0" not in data else None
    except UnicodeDecodeError:
        return None
