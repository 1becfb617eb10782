"""What runs in a process of its own, here or among the peers: each script is asked by `worker`, and answers."""
