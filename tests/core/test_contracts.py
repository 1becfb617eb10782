from typing import Any

import pytest

from amplifier_core.documents import DocumentSearch, DocumentStore
from amplifier_core.shared_stores import SharedStore
from amplifier_core.storage import DurableStore, Inbox, SessionStorage, SessionStore
from amplifier_core.store_views import StoreViews
from amplifier_core.testing import MemoryStore

HELD = (SessionStore, Inbox, DurableStore, DocumentStore, DocumentSearch, StoreViews)


class Forwarding:
    def __init__(self, store: object) -> None:
        self._store = store
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._store, name)


@pytest.mark.parametrize("contract", HELD)
def test_a_wrapper_keeps_the_contracts_of_what_it_forwards_to(contract: type) -> None:
    assert isinstance(MemoryStore(), contract)
    assert isinstance(Forwarding(MemoryStore()), contract)
    assert isinstance(Forwarding(Forwarding(MemoryStore())), contract)


@pytest.mark.parametrize("contract", [SessionStorage, SharedStore])
def test_a_wrapper_keeps_no_other_contract(contract: type) -> None:
    assert not isinstance(MemoryStore(), contract)
    assert not isinstance(Forwarding(MemoryStore()), contract)


def test_a_method_that_a_wrapper_takes_away_is_missing() -> None:
    class WithoutInbox(Forwarding):
        claim = None

    assert isinstance(WithoutInbox(MemoryStore()), SessionStore)
    assert not isinstance(WithoutInbox(MemoryStore()), Inbox)


def test_a_class_with_all_methods_is_not_asked_for_each() -> None:
    class Own(Forwarding, MemoryStore):
        pass

    store = Own(MemoryStore())
    store.asked.clear()
    assert isinstance(store, DurableStore)
    assert not isinstance(store, SharedStore)
    assert isinstance(store, DurableStore)
    assert len(store.asked) == 1  # the first member of a shared store that it has not


def test_a_class_that_derives_from_a_contract_is_a_class_as_any() -> None:
    class Mine(SessionStorage):
        pass

    assert isinstance(Mine(), Mine)
    assert not isinstance(Forwarding(Mine()), Mine)
    assert isinstance(Forwarding(Mine()), SessionStorage)
