import os
import signal
from typing import Any

import pytest

from aliasproof.campaigns.run.fuzz import fuzz
from aliasproof.campaigns.run.worker_calls import CACHE, cleaned_worker
from aliasproof.campaigns.store import plan
from aliasproof.campaigns.store.plan import PROGRAMS_PER_SHARD, Plan
from aliasproof.processes.pool import Pool


def test_a_campaign_ends_late_rather_than_without_a_finding(monkeypatch, tmp_path):
    monkeypatch.setattr(plan, "FIRST_CUTS", ())  # the first program is seldom wrong
    campaign = fuzz(Plan(("aot",), seconds=0.1, workers=1), tmp_path / "run")
    # On a slow machine, a second shard begins before the first one has a result.
    assert campaign.total.programs in (PROGRAMS_PER_SHARD, 2 * PROGRAMS_PER_SHARD)
    seen = {*campaign.known}
    assert {finding.known for finding in campaign.findings.values()} == seen != set()


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_does_not_break_a_step(presses, monkeypatch, tmp_path):
    submit = Pool.submit
    scheduled: list[Any] = []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        for _ in range(presses if not scheduled else 0):
            os.kill(os.getpid(), signal.SIGINT)
        scheduled.append(submit(*args, **kwargs))
        return scheduled[-1]

    monkeypatch.setattr(Pool, "submit", interrupted)
    before = signal.getsignal(signal.SIGINT)
    campaign = fuzz(Plan(("identity",), programs=1000, workers=1), tmp_path / "run")
    assert campaign.interrupted
    assert scheduled, "the step that it came in went on"
    assert campaign.statistics["identity"].programs < 1000
    assert (tmp_path / "run" / "run.json").exists()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_process_that_is_no_worker_deletes_no_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    with cleaned_worker():
        pass
    assert tmp_path.is_dir()
