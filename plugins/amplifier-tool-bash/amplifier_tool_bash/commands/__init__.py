"""Decode a shell command into its simple commands, and describe what each one reaches."""
