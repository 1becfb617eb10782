"""Offer bundles and background sessions to other agents, as tools of an MCP server."""
