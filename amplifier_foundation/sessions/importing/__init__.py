"""Import sessions of other programs: Claude Code, Codex, and programs with session folders.

`finding` finds them. `claude_code`, `codex` and `session_folder` read one format each. `building` makes messages of
what they read, and `storing` stores the messages.
"""
