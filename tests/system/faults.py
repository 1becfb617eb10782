"""Faults that every store is put through: a library that lets a chosen system call fail, and what runs under it.

A script begins with `PRELUDE`, and with one that defines `open_store()`, which opens what the folder `place` holds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FLIPS = int(os.environ.get("FLIPS", "200"))
STRIDE = int(os.environ.get("STRIDE", "41"))
"""Of so many system calls, the process is killed at one."""
CUTS = int(os.environ.get("CUTS", "32"))
SEED = int(os.environ.get("SEED", "20261121"))

KILL, TEAR, FAIL_WRITE, FAIL_SYNC = 1, 2, 3, 4

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { KILL = 1, TEAR, FAIL_WRITE, FAIL_SYNC };
static int mode, left;
static char place[4096];

/* The calls on files below `new_place` are counted; AT=mode:calls:place does what this does, from the start. */
void fault_arm(int new_mode, int calls, const char *new_place) {
    mode = new_mode;
    left = calls;
    snprintf(place, sizeof place, "%s", new_place);
}

__attribute__((constructor)) static void armed_from_the_start(void) {
    const char *at = getenv("AT");
    if (at) sscanf(at, "%d:%d:%4095s", &mode, &left, place);
}

static int of_store(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return strncmp(path, place, strlen(place)) == 0;
}

static int is_due(int sync) {
    if (!mode || (mode == FAIL_WRITE && sync) || (mode == FAIL_SYNC && !sync)) return 0;
    if (mode == KILL || mode == TEAR) return --left == 0;
    return left-- > 0;
}

#define WRITES(name, parameters, arguments, half)                           \
    ssize_t name parameters {                                               \
        static ssize_t (*real) parameters;                                  \
        if (!real) real = dlsym(RTLD_NEXT, #name);                          \
        if (mode && of_store(fd) && is_due(0)) {                            \
            if (mode == FAIL_WRITE) { errno = ENOSPC; return -1; }          \
            if (mode == TEAR) real half;                                    \
            raise(SIGKILL);                                                 \
        }                                                                   \
        return real arguments;                                              \
    }
WRITES(write, (int fd, const void *data, size_t size), (fd, data, size), (fd, data, size / 2))
WRITES(pwrite64, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), (fd, data, size / 2, at))

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }

#define SYNC(name)                                                          \
    int name(int fd) {                                                      \
        static int (*real)(int);                                            \
        if (!real) real = dlsym(RTLD_NEXT, #name);                          \
        if (mode && of_store(fd) && is_due(1)) {                            \
            if (mode == FAIL_SYNC) { errno = EIO; return -1; }              \
            raise(SIGKILL);                                                 \
        }                                                                   \
        return real(fd);                                                    \
    }
SYNC(fsync)
SYNC(fdatasync)

#define ON_PATHS(name, parameters, arguments)                               \
    int name parameters {                                                   \
        static int (*real) parameters;                                      \
        if (!real) real = dlsym(RTLD_NEXT, #name);                          \
        if ((mode == KILL || mode == TEAR) && is_due(1)) raise(SIGKILL);    \
        return real arguments;                                              \
    }
ON_PATHS(unlink, (const char *path), (path))
ON_PATHS(unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
ON_PATHS(rename, (const char *from, const char *to), (from, to))
ON_PATHS(mkdir, (const char *path, mode_t bits), (path, bits))
ON_PATHS(link, (const char *from, const char *to), (from, to))
ON_PATHS(linkat, (int f, const char *from, int t, const char *to, int flags), (f, from, t, to, flags))
ON_PATHS(ftruncate64, (int fd, off_t size), (fd, size))
"""

PRELUDE = """
import asyncio, ctypes, os, shutil, signal, sys
from amplifier_core.errors import StoreUnavailable
from amplifier_core.storage import SessionRecord
shim = ctypes.CDLL(None)
place = sys.argv[1]
"""

KILLED_AT_EACH_CALL = """
TURN = [{"role": role, "content": "x" * 3000} for role in ("user", "assistant", "tool")]
SET_ASIDE = {"torn_tail"}  # by the next append: nobody was told that it was there

async def turn(say):
    store = open_store()
    try:
        await store.get("s")
    except LookupError:
        await store.create(SessionRecord("s"))
    count = await store.append("s", TURN, at=(await store.get("s")).message_count)
    say(count)
    await store.update("s", turn_count=count // 3)
    await store.close()

def in_child(work):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        work(lambda count: os.write(write, b"%d\\n" % count))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        counts = [int(line) for line in said]
    return os.waitpid(child, 0)[1], counts

def killed(mode, call):
    def work(say):
        shim.fault_arm(mode, call, place.encode())
        asyncio.run(turn(say))
    return in_child(work)

async def counted(say):
    store = open_store()
    found = await store.sessions()
    for record in found:
        assert await store.read("s") == TURN * (record.message_count // 3)
        assert {finding.kind for finding in await store.examine("s")} <= SET_ASIDE
    say(found[0].message_count if found else 0)
    await store.close()

async def whole(say):
    store = open_store()
    assert await store.examine("s") == []
    await store.close()
    await counted(say)

def survivors(ask=counted):
    status, counts = in_child(lambda say: asyncio.run(ask(say)))
    assert status == 0, "the store could not be read"
    return counts[0]

mode, turns, stride = map(int, sys.argv[2:])
for number in range(turns):
    assert in_child(lambda say: asyncio.run(turn(say)))[0] == 0
before, call = survivors() if turns else 0, 1 - stride
os.makedirs(place, exist_ok=True)
shutil.copytree(place, place + "-before")
while True:
    call += stride
    shutil.rmtree(place)
    shutil.copytree(place + "-before", place)
    status, counts = killed(mode, call)
    after = survivors()
    assert after in (before, before + 3), (call, after)
    assert after >= max(counts, default=before), (call, after, counts)
    if status == 0:
        break
    assert status == signal.SIGKILL, (call, status)
    assert in_child(lambda say: asyncio.run(turn(say))) == (0, [after + 3]), call
    assert survivors(whole) == after + 3, call
print(call)
"""

FAILS_AND_WORKS_AGAIN = """
async def main():
    store = open_store()
    await store.create(SessionRecord("s"))
    acknowledged = await store.append("s", [{"n": 0}], at=0)
    shim.fault_arm(int(sys.argv[2]), 3, place.encode())
    for _ in range(3):
        try:
            acknowledged = await store.append("s", [{"n": acknowledged}], at=acknowledged)
        except StoreUnavailable as error:
            print(error)
    assert await store.read("s") == [{"n": n} for n in range(acknowledged)]
    shim.fault_arm(0, 0, b"")
    for at in range(acknowledged, acknowledged + 3):
        await store.append("s", [{"n": at}], at=at)
    await store.close()

asyncio.run(main())
"""

ONE_OF_TWO = """
async def main():
    store = open_store()
    print("ready", flush=True)
    sys.stdin.readline()
    won = 0
    for at in range(0, 60, 3):
        try:
            await store.append("s", [{"by": sys.argv[2], "n": n} for n in range(3)], at=at)
            won += 1
        except RuntimeError as error:
            assert type(error).__name__ == "SessionConflict", error
            while (await store.get("s")).message_count <= at:
                pass
    print(won)
    await store.close()

asyncio.run(main())
"""


def under(shim: Path, script: str, *arguments: object) -> str:
    """Run a script under the library and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script, *map(str, arguments)],
        env={**os.environ, "LD_PRELOAD": str(shim)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def two_processes(script: str, place: Path) -> list[int]:
    """Let `ONE_OF_TWO` run in two processes at the same time, and return how many appends each of them won."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script + ONE_OF_TWO, str(place), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [int(process.communicate(timeout=60)[0]) for process in processes]
