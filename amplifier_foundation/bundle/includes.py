"""Build the tree of included bundles, even with broken ones in it."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import BundleError
from amplifier_core.frozen import slotted

from ..documents.positions import show_file
from .load import MAX_INCLUDE_DEPTH, bundle_reader
from .references import find_bundle, names_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .load import LeaveOut
    from .model import Bundle


@slotted
class IncludedBundle:
    """One bundle in the tree. A bundle with a `problem` is unreadable, and its includes are unknown.

    A `repeated` bundle has its includes at its first place in the tree.
    """

    source: str
    """As written."""
    name: str = ""
    version: str = ""
    file: str = ""
    repeated: bool = False
    problem: str = ""
    includes: list[IncludedBundle] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the tree from here on as JSON."""
        about = {name: getattr(self, name) for name in ("source", "name", "version", "file", "repeated", "problem")}
        return {**about, "includes": [each.as_dict() for each in self.includes]}

    def is_whole(self) -> bool:
        """Whether it and all its includes are readable."""
        return not self.problem and all(each.is_whole() for each in self.includes)


def include_tree(
    source: str | Path, *, registry: Mapping[str, str | Path] | None = None, leave_out: LeaveOut | None = None
) -> IncludedBundle:
    """Return the bundle `source` (as for `find_bundle`) with all its includes.

    An include that `leave_out` has a reason against is a node with this reason as its problem.

    Raises `BundleError` if the bundle itself is unreadable.
    """
    file = find_bundle(source, names=registry)
    tree = _Tree(registry or {}, leave_out)
    return tree.node(str(source), file, tree.read(file), (), {})


class _Tree:
    """One walk over the tree, with the bundles seen so far."""

    def __init__(self, names: Mapping[str, str | Path], leave_out: LeaveOut | None) -> None:
        self._names = names
        self._leave_out = leave_out
        self._seen: set[Path] = set()
        self.read = bundle_reader()

    def node(
        self, source: str, file: Path, bundle: Bundle, row: tuple[Path, ...], outer: Mapping[str, Path]
    ) -> IncludedBundle:
        """Return the node of a bundle; `row` are the files of the including bundles, `outer` their names."""
        node = IncludedBundle(source, bundle.name, bundle.version, show_file(file))
        key = file.resolve()
        if key in row or len(row) >= MAX_INCLUDE_DEPTH:
            node.problem = "includes itself" if key in row else f"deeper than {MAX_INCLUDE_DEPTH} bundles"
        elif key in self._seen:
            node.repeated = True
        else:
            self._seen.add(key)
            own = {**outer, **bundle.source_base_paths}
            node.includes = [self._read_node(bundle, each, (*row, key), own) for each in bundle.includes]
        return node

    def _read_node(self, bundle: Bundle, source: str, row: tuple[Path, ...], own: Mapping[str, Path]) -> IncludedBundle:
        if self._leave_out is not None and (reason := self._leave_out(source)):
            return IncludedBundle(source, problem=reason)
        try:
            file = find_bundle(
                source, base=bundle.base_path, names=names_in(source, own, self._names, bundle.base_path)
            )
        except BundleError as error:
            return IncludedBundle(source, problem=str(error))
        try:
            return self.node(source, file.absolute(), self.read(file), row, own)
        except BundleError as error:
            return IncludedBundle(source, file=show_file(file.absolute()), problem=str(error))
