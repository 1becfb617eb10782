"""Read documents: YAML and front matter with positions, and the problems in them."""
