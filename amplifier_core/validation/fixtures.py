"""Mount the module under test in fixtures; the pytest plugin offers them together with pytest-asyncio."""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


@pytest_asyncio.fixture
async def provider_module(module_path: Path | None, coordinator: Any) -> AsyncIterator[Any]:
    """Yield the module's first provider."""
    async with mount_module(module_path, coordinator):
        yield _first(coordinator, "providers")


@pytest_asyncio.fixture
async def tool_module(module_path: Path | None, coordinator: Any) -> AsyncIterator[Any]:
    """Yield the module's first tool."""
    async with mount_module(module_path, coordinator):
        yield _first(coordinator, "tools")


@pytest_asyncio.fixture
async def orchestrator_module(module_path: Path | None, coordinator: Any) -> AsyncIterator[Any]:
    """Yield the module's orchestrator."""
    async with mount_module(module_path, coordinator):
        yield _only(coordinator, "orchestrator")


@pytest_asyncio.fixture
async def context_module(module_path: Path | None, coordinator: Any) -> AsyncIterator[Any]:
    """Yield the module's context."""
    async with mount_module(module_path, coordinator):
        yield _only(coordinator, "context")


@pytest_asyncio.fixture
async def hook_cleanup(module_path: Path | None, coordinator: Any) -> AsyncIterator[Any]:
    """Mount a module of hooks and yield the result of its mount: its clean-up, to be called once at most."""
    async with mount_module(module_path, coordinator) as cleanup:
        yield cleanup


@asynccontextmanager
async def mount_module(module_path: Path | None, coordinator: Any) -> AsyncIterator[Any]:
    """Mount the module without configuration for the time of the block; skip the test without a module.

    The block may call the clean-up itself; otherwise it is called afterwards.
    """
    if module_path is None:
        pytest.skip("No module path detected")
    from .base import import_module_from_path

    mount = getattr(import_module_from_path(module_path), "mount", None)
    if mount is None:
        pytest.fail(f"{module_path} has no function mount(coordinator, config)", pytrace=False)
    async with AsyncExitStack() as endings:
        endings.push_async_callback(coordinator.cleanup)
        cleanup = _once(await mount(coordinator, {}))
        if callable(cleanup):
            endings.push_async_callback(cleanup)
        yield cleanup


def _once(cleanup: Any) -> Any:
    """Return an async function that calls a clean-up the first time; return anything else unchanged."""
    if not callable(cleanup):
        return cleanup
    left: list[Callable[[], Any]] = [cleanup]

    async def run() -> None:
        outcome = left.pop()() if left else None
        if inspect.isawaitable(outcome):
            await outcome

    return run


def _first(coordinator: Any, point: str) -> Any:
    modules = coordinator.get(point)
    if not modules:
        pytest.fail(f"mount() mounted nothing at {point}", pytrace=False)
    return next(iter(modules.values()))


def _only(coordinator: Any, point: str) -> Any:
    module = coordinator.get(point)
    if module is None:
        pytest.fail(f"mount() mounted nothing at {point}", pytrace=False)
    return module
