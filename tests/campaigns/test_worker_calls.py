"""What a worker deletes."""

from __future__ import annotations

from aliasproof.campaigns.run.worker_calls import CACHE, cleaned_worker


def test_a_process_that_is_no_worker_deletes_no_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    with cleaned_worker():
        pass
    assert tmp_path.is_dir()
