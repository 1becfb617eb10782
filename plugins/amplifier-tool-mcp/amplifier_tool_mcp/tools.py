"""Call the tools of servers, and read their resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from amplifier_core.models import ToolResult

from .connection import Connection
from .errors import InvalidAnswer, ServerError, ToolChanged
from .listing import MOST_RESOURCES, plain, read_pages
from .names import PREFIX
from .results import make_content, make_result, read_resource, shorten
from .stdio import replace_halves

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from mcp import Client

    from amplifier_core import ModuleCoordinator
    from amplifier_core.message_models import ImageBlock
    from amplifier_core.permissions.calls import Access

    from .config import McpConfig
    from .listing import ListedTool
    from .servers import Server

PROGRESS = "tool:progress"
"""The event of a running call: `text`, `progress`, `total`, `message`, and its `tool_name`, `tool_call_id`."""


class McpTool:
    """One tool of one server, as it was first listed in this session."""

    effects = "once"

    def __init__(
        self, connection: Connection, listed: ListedTool, name: str, coordinator: ModuleCoordinator, config: McpConfig
    ) -> None:
        self.name = name
        self.description = listed.description
        self.input_schema = listed.schema
        self.listed = listed
        self.refusal = ""
        """Why it is not called any more: the server has changed or removed it."""
        self.untrusted_results = not connection.server.trusted
        self._connection = connection
        self._coordinator = coordinator
        self._seconds = connection.server.config.timeout or config.call_timeout
        self._longest = config.max_result_chars

    def accesses(self, arguments: Mapping[str, Any]) -> Iterable[Access]:
        """Return what a call reaches: the tool as it was listed, so that no answer holds for a changed one."""
        from amplifier_core.permissions.calls import Access

        if not self._connection.server.trusted:
            return [Access("server", self.listed.fingerprint)]
        return [Access("other", self.listed.fingerprint, form="harmless" if self.listed.reads_only else "text")]

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Run the call; the `error` of a failed one has a `message` and a `type`."""
        from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult

        arguments = replace_halves(input)
        request = CallToolRequest(params=CallToolRequestParams(name=self.listed.name, arguments=arguments))
        # Not `Client.call_tool`: it checks results against patterns of the server, which may take for ever.
        report = self._make_reporter()

        async def ask(client: Client) -> Any:
            if self.refusal:  # the call may have waited for a new start, and the server is another one since
                raise ToolChanged(self.refusal)
            return await client.session.send_request(request, CallToolResult, progress_callback=report)

        if self.refusal:
            return _fail(ToolChanged.__name__, self.refusal)
        return await ask_server(self._connection, self._seconds, ask, lambda result: make_result(result, self._longest))

    def _make_reporter(self) -> Any:
        """Return a function that tells the hooks about progress; None: nobody listens."""
        hooks = self._coordinator.hooks
        heard = getattr(hooks, "has_handlers", None)
        if heard is not None and not heard(PROGRESS):
            return None
        find_call = self._coordinator.get_capability("tool.call")
        call = (find_call() if find_call is not None else None) or {}
        about = {"tool_name": self.name, "tool_call_id": call.get("tool_call_id", "")}

        async def report(progress: float, total: float | None, message: str | None) -> None:
            part = f"{progress:g} of {total:g}" if total else f"{progress:g}"
            text = f"{part}: {shown}" if (shown := plain(message, 500)) else part
            said = {"progress": progress, "total": total, "message": shown}
            await hooks.emit(PROGRESS, {**about, **said, "text": f"{text}\n"})

        return report


class StandInTool:
    """Stands for a tool of a server that is not asked what it offers: its permissions can be explained."""

    description = "A tool of an MCP server."
    input_schema: ClassVar[dict[str, Any]] = {"type": "object"}

    def __init__(self, name: str, server: Server) -> None:
        self.name = name
        self._server = server

    def accesses(self, arguments: Mapping[str, Any]) -> Iterable[Access]:
        """Return what a call reaches: the given fingerprint of the tool, else its name."""
        from amplifier_core.permissions.calls import Access

        return [Access("other" if self._server.trusted else "server", str(next(iter(arguments.values()), self.name)))]

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Fail: it is never called."""
        return _fail(ServerError.__name__, f"the MCP server '{self._server.name}' has not started")


class ResourceTool:
    """Lists the resources of servers, and reads one."""

    name = "mcp_resources"
    description = (
        "List the resources of MCP servers, or read one: give its `server` and its `uri`. Without `uri` it lists them."
    )

    def __init__(self, config: McpConfig) -> None:
        self.connections: dict[str, Connection] = {}
        """The servers with resources, by name."""
        self._seconds, self._longest = config.call_timeout, config.max_result_chars

    @property
    def untrusted_results(self) -> bool:
        """Whether any of the servers is a stranger."""
        return not all(each.server.trusted for each in self.connections.values())

    @property
    def input_schema(self) -> dict[str, Any]:
        """The schema of the input: it names the servers."""
        server = {"type": "string", "enum": sorted(self.connections)}
        return {"type": "object", "properties": {"server": server, "uri": {"type": "string"}}}

    def accesses(self, arguments: Mapping[str, Any]) -> Iterable[Access]:
        """Return the servers that a call asks."""
        from amplifier_core.permissions.calls import Access

        asked = self._choose(arguments)
        return [
            Access("other", each.server.name, form="harmless")
            if each.server.trusted
            else Access("server", each.server.name)
            for each in asked
        ]

    def _choose(self, arguments: Mapping[str, Any]) -> Sequence[Connection]:
        named = arguments.get("server")
        return [each for name, each in self.connections.items() if named in (None, name)]

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Run the call; the `error` of a failed one has a `message` and a `type`."""
        asked, uri = self._choose(input), input.get("uri")
        if not asked or (uri is not None and (not isinstance(uri, str) or len(asked) > 1)):
            return _fail("InvalidInput", f"server: name one of {', '.join(sorted(self.connections))}")
        if uri is not None:
            return await ask_server(
                asked[0], self._seconds, lambda client: client.read_resource(uri, cache_mode="bypass"), self._read
            )
        lines: list[str] = []
        for each in asked:
            result = await ask_server(each, self._seconds, _list_resources, lambda found: ToolResult(output=found))
            lines.append(f"{each.server.name}:\n{result.output if result.success else result.error}")
        return ToolResult(output=shorten("\n".join(lines), self._longest))

    def _read(self, result: Any) -> ToolResult:
        texts: list[str] = []
        images: list[ImageBlock] = []
        for each in result.contents:
            read_resource(each, texts, images)
        return make_content(shorten("\n".join(texts), self._longest), images)


async def _list_resources(client: Client) -> str:
    resources = await read_pages(client.list_resources, "resources", MOST_RESOURCES)
    templates = await read_pages(client.list_resource_templates, "resource_templates", MOST_RESOURCES)
    places = [(each.uri, each) for each in resources] + [(each.uri_template, each) for each in templates]
    lines = (
        f"{place}  {plain(each.title or each.name, 100)}  {plain(each.description, 200)}" for place, each in places
    )
    return "\n".join(map(str.rstrip, lines)) or "none"


def find_stand_in(name: str, servers: Sequence[Server], config: McpConfig) -> StandInTool | ResourceTool | None:
    """Return what stands for the tool of a name, by the server that its name begins with; None for another name."""
    if name == ResourceTool.name and servers:
        resources = ResourceTool(config)
        resources.connections = {each.name: Connection(each) for each in servers}
        return resources
    begun = ((each, f"{PREFIX}__{each.slug}__") for each in servers)
    return next((StandInTool(name, each) for each, start in begun if name.startswith(start) and name != start), None)


async def ask_server(
    connection: Connection,
    seconds: float,
    ask: Callable[[Client], Awaitable[Any]],
    read: Callable[[Any], ToolResult],
) -> ToolResult:
    """Ask a server, and return what `read` makes of its answer; whatever it does wrong is a failed result."""
    from mcp import MCPError
    from pydantic import ValidationError

    name = connection.server.name
    try:
        return read(await connection.call(ask, seconds))
    except ServerError as error:
        return _fail(type(error).__name__, str(error))
    except MCPError as error:
        return _fail("McpError", f"the MCP server '{name}' refuses the call: {plain(error.message, 1000)}")
    except (ValidationError, KeyError, TypeError, ValueError, RuntimeError, RecursionError) as error:
        return _fail(InvalidAnswer.__name__, str(InvalidAnswer(name, type(error).__name__)))


def _fail(kind: str, message: str) -> ToolResult:
    return ToolResult(success=False, error={"message": message, "type": kind})
