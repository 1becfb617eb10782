"""Make `isinstance` with a runtime protocol mean the same on each Python: an object has the members of the protocol.

Since Python 3.12, the members are looked up in an object and its class, without `__getattr__`. A wrapper, such as a
metered store with a `__getattr__`, would then be no store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from abc import ABCMeta as ProtocolMeta
else:
    ProtocolMeta = type(Protocol)


class Contract(ProtocolMeta):
    """The metaclass of runtime protocols: `isinstance` asks the `__getattr__` of an object, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        if super().__instancecheck__(instance):  # Python keeps the answer for a class with all members: that is quick
            return True
        if Protocol not in cls.__bases__ or not hasattr(type(instance), "__getattr__"):
            return False
        members: set[str] = getattr(cls, "__protocol_attrs__", set())  # none on Python 3.11, which has asked them all
        return bool(members) and all(cls._is_member(name, instance) for name in members)

    def _is_member(cls, name: str, instance: object) -> bool:
        value = getattr(instance, name, cls)  # a method may be None: it is none
        return value is not cls and (value is not None or not callable(getattr(cls, name, None)))
