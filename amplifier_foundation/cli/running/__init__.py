"""Run one turn of a session, or a conversation at a terminal."""
