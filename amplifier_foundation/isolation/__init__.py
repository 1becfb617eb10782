"""Run sessions in processes of their own: a prepared process forks one for each, and their store stays here.

The *parent* is the process that wants a session. Its *zygote* is a process with one thread and all common modules; it
does nothing but fork. The *child* is such a fork: it makes one session, takes its turn, and ends. The child has no
store and no events of its own. What its session stores, emits, asks and shows goes through a socket to the parent,
which checks each call (`serving`). So each message is durable before the next step, one process writes the store, and
no session writes in another one's history.

A module with `sandbox: true` has a process of its own, too, in the sandbox of a plugin (`sandboxed_tools`). The session
starts it, and does not trust it: it tells plain data of its tools, and answers their calls (`tool_host`).
"""
