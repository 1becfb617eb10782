"""Mount an empty folder by FUSE, and kill its server: whoever asks for the folder then gets ENOTCONN, as from sshfs.

`unreachable` makes a name that answers with an error of the system too, without a mount or a privilege.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

needs_fuse = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK), reason="only root mounts here"
)

# https://www.man7.org/linux/man-pages/man4/fuse.4.html: each answer has a length, an error, and the request's number
SERVER = """
import ctypes, errno, os, stat, struct, sys
fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
if ctypes.CDLL(None).mount(b"test", os.fsencode(sys.argv[1]), b"fuse", 0, options):
    sys.exit("it cannot be mounted")
print("mounted", flush=True)
attributes = struct.pack("<QII6Q10I", 0, 0, 0, *[1, 0, 0, 0, 0, 0], *[0, 0, 0, stat.S_IFDIR | 0o700, 2], *[0] * 5)
answers = {
    26: struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, *[0] * 8),  # init
    3: attributes,
    27: bytes(16),  # opendir
    29: b"",  # releasedir
}
while True:
    _, operation, number = struct.unpack_from("<IIQ", os.read(fuse, 1 << 18))
    if operation == 2:  # forget has no answer
        continue
    answer = answers.get(operation, b"")
    error = 0 if operation in answers else errno.ENOENT if operation == 1 else errno.ENOSYS
    os.write(fuse, struct.pack("<IiQ", 16 + len(answer), -error, number) + answer)
"""


@contextmanager
def fuse_mount(folder: Path) -> Iterator[Callable[[], None]]:
    """Mount an empty folder while the block runs; yield a function that kills its server."""
    server = subprocess.Popen([sys.executable, "-c", SERVER, folder], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None

    def kill() -> None:
        server.kill()
        server.wait()

    try:
        if not server.stdout.readline():
            pytest.skip("this system mounts nothing here")
        yield kill
    finally:
        kill()
        server.stdout.close()
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def unreachable(folder: Path) -> Iterator[None]:
    """Have the system answer with "File name too long" for `folder` while the block runs; then it is back."""
    away = folder.with_name(f"{folder.name}-away")
    folder.rename(away)
    folder.symlink_to("x" * 300)
    try:
        yield
    finally:
        folder.unlink()
        away.rename(folder)
