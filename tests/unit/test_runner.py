"""What a node knows of a run of its own: how it is stopped."""

from __future__ import annotations

import pytest

from opencognit.engine.runner import Active
from opencognit.states import CancelMode
from opencognit.work.claims import Claimed


def _active() -> Active:
    return Active(Claimed(run_id=1, token=1, agent="ann", adapter="bash", task_id=1, attempt=1, depth=0, reason=""))


@pytest.mark.parametrize("mode", CancelMode)
def test_a_run_that_is_lost_while_it_is_being_stopped_is_lost(mode: CancelMode) -> None:
    """Another has it: whatever it was stopped for, nothing of it may be booked."""
    active = _active()
    active.stop(mode, "board")
    assert not active.is_lost
    active.stop(None, "another node took it over")
    assert active.is_lost
    active.stop(mode, "board")
    assert active.is_lost


def test_the_first_reason_to_stop_holds_and_none_does_once_it_has_finished() -> None:
    """A second wish changes nothing, and a run whose end is being booked is not stopped."""
    active = _active()
    active.stop(CancelMode.RUN, "board")
    active.stop(CancelMode.DRAIN, "system")
    assert active.stopped is not None
    assert active.stopped.mode is CancelMode.RUN
    over = _active()
    over.finished = True
    over.stop(None, "system")
    assert over.stopped is None
