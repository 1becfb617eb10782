"""Use MCP servers."""
