"""Do what a person asks of sessions and background sessions, for every surface: command line, page, editor.

Nothing here prints or asks. What reads or writes the store is async; what asks processes at their sockets blocks, and a
server calls it in a thread. Data goes out as frozen records, or as mappings for JSON. Each act is recorded with the
person who did it.
"""
