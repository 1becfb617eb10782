"""Run `amplifier completion`: print the script that completes commands in a shell."""

from __future__ import annotations

import click


@click.command(epilog="Example: amplifier completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options, ids and names in SHELL.

    \b
    bash: amplifier completion bash >> ~/.bashrc
    zsh:  amplifier completion zsh >> ~/.zshrc, below compinit
    fish: amplifier completion fish > ~/.config/fish/completions/amplifier.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    from ..cli import COMPLETE, cli

    made = get_completion_class(shell)
    assert made is not None  # click has each of the choices
    click.echo(ShellComplete.source(made(cli, {}, "amplifier", COMPLETE)))
