"""A session's modules, small and real, and distributions that exist for one test."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.events import ALL_EVENTS
from amplifier_core.loader import ModuleLoader
from amplifier_core.models import HookResult
from amplifier_core.session import AmplifierSession
from amplifier_core.testing import MockContextManager

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from pathlib import Path

    from amplifier_core.coordinator import ModuleCoordinator
    from amplifier_core.transcript import Transcript


class SharedContext:
    """A context that keeps its messages in the session's own transcript."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript

    async def add_message(self, message: dict[str, Any]) -> None:
        self.transcript.append(message)

    async def get_messages(self) -> list[dict[str, Any]]:
        return list(self.transcript)

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any = None) -> list[Any]:
        return list(self.transcript)

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        self.transcript.replace(messages)

    async def clear(self) -> None:
        self.transcript.replace([])


class EchoLoop:
    """An orchestrator that answers a prompt with itself."""

    async def execute(self, prompt: str, context: Any, providers: Any, tools: Any, hooks: Any, **kwargs: Any) -> str:
        await hooks.emit("prompt:submit", {"prompt": prompt})
        await context.add_message({"role": "user", "content": prompt})
        await context.add_message({"role": "assistant", "content": f"{prompt}!"})
        return f"{prompt}!"


class NamedProvider:
    """A provider that is only there to be found; `name` is what it mounts itself as."""

    def __init__(self, name: str = "echo", config: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.config = dict(config or {})


class LocalModules(ModuleLoader):
    """Loads `mounts`, which a test may change, and everything else as the kernel does."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.undone: list[str] = []
        self.mounts: dict[str, Callable[..., Any]] = {
            "loop-echo": self.mounting("orchestrator", EchoLoop()),
            "context-shared": self._mount_context,
            "context-foreign": self._mount_foreign,
            "provider-echo": self._mount_provider,
            "hooks-recorder": self._mount_recorder,
        }

    async def load(
        self,
        module_id: str,
        config: dict[str, Any] | None = None,
        source_hint: str | dict[str, Any] | None = None,
        coordinator: ModuleCoordinator | None = None,
    ) -> Any:
        if module_id not in self.mounts:
            return await super().load(module_id, config, source_hint, coordinator)

        async def mount_module(target: ModuleCoordinator) -> Any:
            return await self.mounts[module_id](target, config)

        return mount_module

    def mounting(self, point: str, module: Any, name: str | None = None) -> Callable[..., Any]:
        """Return a mount function for `module`, whose clean-up writes the point's name into `undone`."""

        async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Callable[[], None]:
            await coordinator.mount(point, module, name)
            return lambda: self.undone.append(name or point)

        return mount

    def noting(self, order: list[str], name: str, point: str | None = None, module: Any = None) -> Callable[..., Any]:
        """Return a mount function that writes `name` into `order`, mounts `module`, and writes its end there too."""

        async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Callable[[], None]:
            order.append(name)
            if point is not None:
                await coordinator.mount(point, module, name)
            return lambda: order.append(f"{name} ends")

        return mount

    def failing(self, error: BaseException) -> Callable[..., Any]:
        """Return a mount function that raises `error`."""

        async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
            raise error

        return mount

    def names_seen(self, session_id: str | None = None) -> list[str]:
        """Return the events in their order; of one session, or of all."""
        return [name for name, data in self.seen if session_id in (None, data["session_id"])]

    def data_of(self, event: str, session_id: str | None = None) -> list[dict[str, Any]]:
        """Return the data of every `event`; of one session, or of all."""
        return [data for name, data in self.seen if name == event and session_id in (None, data["session_id"])]

    async def _mount_context(self, coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await coordinator.mount("context", SharedContext(coordinator.get_capability("session.transcript")))

    async def _mount_foreign(self, coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await coordinator.mount("context", MockContextManager())

    async def _mount_provider(self, coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await coordinator.mount("providers", NamedProvider(config=config))

    async def _mount_recorder(self, coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        async def record(event: str, data: dict[str, Any]) -> HookResult:
            self.seen.append((event, dict(data)))
            return HookResult()

        for event in ALL_EVENTS:
            coordinator.hooks.register(event, record, name="recorder")


@pytest.fixture
def modules() -> LocalModules:
    return LocalModules()


@pytest.fixture
def plan() -> dict[str, Any]:
    return {
        "session": {"orchestrator": "loop-echo", "context": "context-shared"},
        "providers": [{"module": "provider-echo"}],
        "hooks": [{"module": "hooks-recorder"}],
    }


@pytest.fixture
async def parent(plan: dict[str, Any], modules: LocalModules) -> AsyncIterator[AmplifierSession]:
    async with AmplifierSession(plan, loader=modules, session_id="p") as session:
        yield session
        await session.cleanup(cascade_children=True)


class Site:
    """A folder on `sys.path` that distributions are installed in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(
        self, dist: str, entry_points: Mapping[str, Mapping[str, str]], files: Mapping[str, str], version: str = "1.0"
    ) -> None:
        """Install `dist` with its entry points (by group, then by name) and its files (by path)."""
        about = self.folder / f"{dist.replace('-', '_')}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\nSummary: About {dist}\n"
        )
        lines = [
            f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
            for group, entries in entry_points.items()
        ]
        (about / "entry_points.txt").write_text("\n".join(lines))
        for path, text in files.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

    def plugin(self, dist: str, source: str, version: str = "1.0", name: str | None = None) -> None:
        """Install a plugin of one file; its entry point is `name`, or the dist's name without `amplifier-`."""
        package = dist.replace("-", "_")
        entry = name or dist.removeprefix("amplifier-")
        self.install(dist, {"amplifier": {entry: package}}, {f"{package}.py": source}, version)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield Site(folder)
    for name, module in sys.modules.copy().items():  # at once: a garbage collection within `list` may import
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
