"""Import bundles of other programs: agents, plugins and `.claude` folders of Claude Code.

`claude_agents` reads one agent, `claude_plugins` reads a folder, and `writing` writes the bundle. Nothing is run, and
nothing outside of the folder is read.
"""
