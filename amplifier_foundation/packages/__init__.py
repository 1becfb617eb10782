"""Look after the packages of plugins: begin one, check one, switch one off, and pin all of them for a project."""
