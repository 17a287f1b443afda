"""`instead_of`: what a wrong function replaces must exist, and must take the same parameters."""

from contextlib import AbstractContextManager

import pytest

from aliasproof.faults.fault import Fault, Passes, instead_of, require_same_parameters
from aliasproof.ir.errors import InternalError
from aliasproof.reference_pass import liveness
from aliasproof.reference_pass.calls import regions
from aliasproof.reference_pass.calls.regions import Region


def never_overlap(one: Region, other: Region) -> bool:
    """No two regions overlap."""
    return False


def ends_at_its_start(self: Region) -> int:
    """A region ends at its start."""
    return int(self.start)


def planted(fault: Fault) -> AbstractContextManager[object]:
    """The context in which the fault is planted."""
    assert isinstance(fault.make, Passes)
    return fault.make.within()


def test_a_function_is_replaced_in_each_home_while_the_passes_run():
    fault = instead_of(never_overlap, "overlap", "rule", "calls.regions", "liveness")
    homes, right = (vars(regions), vars(liveness)), regions.overlap
    with planted(fault):
        assert all(home["overlap"] is never_overlap for home in homes)
    assert all(home["overlap"] is right for home in homes)


def test_a_property_is_replaced_by_a_property():
    fault = instead_of(ends_at_its_start, "end", "rule", Region)
    region = Region(4, (3,), (1,), 1)
    with planted(fault):
        assert region.end == 4
    assert region.end == 7


def test_a_name_that_the_home_does_not_have_is_an_error():
    with pytest.raises(
        InternalError, match=r"'overlaps' of aliasproof\..*\.calls\.regions, which has no"
    ):
        instead_of(never_overlap, "overlaps", "rule", "calls.regions")


def test_two_homes_must_mean_the_same_function(monkeypatch):
    monkeypatch.setattr(liveness, "overlap", never_overlap)
    with pytest.raises(InternalError, match="these are different functions"):
        instead_of(never_overlap, "overlap", "rule", "calls.regions", "liveness")


def test_other_parameters_are_an_error_that_shows_both_signatures():
    def takes_one_region(one):
        """A region overlaps nothing."""

    with pytest.raises(InternalError) as caught:
        instead_of(takes_one_region, "overlap", "rule", "calls.regions")
    assert "'takes one region'" in str(caught.value)
    assert "takes_one_region(one) does not" in str(caught.value)
    assert "overlap(one, other)" in str(caught.value)


def right(first, second=0, *, keyword): ...
def another_name(first, other=0, *, keyword): ...
def another_order(second=0, first=0, *, keyword): ...
def another_kind(first, second=0, keyword=None): ...
def no_default(first, second, *, keyword): ...
def one_more(first, second=0, *, keyword, more=0): ...
def annotated(first: int, second: int = 0, *, keyword: str) -> None: ...


@pytest.mark.parametrize("wrong", [another_name, another_order, another_kind, no_default, one_more])
def test_parameters_differ_by_name_order_kind_default_and_number(wrong):
    with pytest.raises(InternalError, match="does not take the parameters"):
        require_same_parameters(wrong, right)


def test_annotations_may_differ():
    require_same_parameters(annotated, right)
