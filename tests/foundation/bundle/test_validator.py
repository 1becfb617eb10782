"""`BundleValidator` as programs call it: results to add to, and what a session lacks on a kernel without defaults."""

from __future__ import annotations

import pytest

from amplifier_core.errors import BundleValidationError
from amplifier_foundation import Bundle, BundleValidator, ValidationResult, validate_bundle, validate_bundle_or_raise

WHOLE = {
    "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}},
    "providers": [{"module": "provider-playbook"}],
}


def test_a_caller_adds_errors_and_warnings_of_its_own() -> None:
    result, valid = ValidationResult(), list[bool]()
    for add, message in ((result.add_warning, "it is old"), (result.add_error, "it has no owner")):
        add(message)
        valid.append(result.valid)
    assert valid == [True, False]
    assert [len(each) for each in (result.errors, result.warnings)] == [1, 1]
    assert "it has no owner" in result.errors[0]
    assert "it is old" in result.warnings[0]


@pytest.mark.parametrize(
    ("parts", "missing"),
    [
        ({}, ["Mount plan requires 'session' section", "Mount plan requires at least one provider"]),
        ({"session": {"context": {"module": "x"}}}, ["session: Missing required 'orchestrator' field"]),
        ({"session": {"orchestrator": {"module": "x"}}}, ["session: Missing required 'context' field"]),
        (WHOLE, []),
    ],
)
def test_what_a_mount_plan_lacks_is_told(parts: dict[str, object], missing: list[str]) -> None:
    bundle, validator = Bundle(name="b", **parts), BundleValidator()  # type: ignore[arg-type]
    errors = " ".join(validator.validate_completeness(bundle).errors)
    assert all(each in errors for each in missing)
    if missing:
        with pytest.raises(BundleValidationError) as caught:
            validator.validate_completeness_or_raise(bundle)
        assert all(each in str(caught.value) for each in missing)
    else:
        validator.validate_completeness_or_raise(bundle)


def test_a_session_of_ours_needs_none_of_it() -> None:
    assert validate_bundle(Bundle(name="b")).valid
    validate_bundle_or_raise(Bundle(name="b"))
