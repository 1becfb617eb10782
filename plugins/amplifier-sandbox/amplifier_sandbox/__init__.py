"""Confine programs and tools of sessions: in bubblewrap, else under Landlock, on macOS by `sandbox-exec`.

choosing.py    the sandbox of this machine, tried before it is used
tools.py       processes of tools with `sandbox: true`
protection.py  files that programs obey, and files with secrets
"""
