"""Keep sessions: record, fork, resume, repair, find and export them."""
