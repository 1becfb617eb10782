"""Background sessions: declared in a bundle, woken by triggers, durable."""
