"""An MCP server of the official SDK, in the newest protocol: one of its tools adds another."""

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("modern")


def late() -> str:
    """Is there now."""
    return "here"


@server.tool()
async def grow(context: Context) -> str:
    """Adds a tool."""
    server.add_tool(late)
    await context.notify_tools_changed()
    return "grown"


server.run()
