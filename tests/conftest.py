"""Tests that rest on what only some systems have are skipped on the others, each with its reason.

Hypothesis draws few examples of each law here; `make test-slow` draws them again from other seeds. How long an example
takes decides nothing: a busy machine is no failure.
"""

import gc
import sys

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")

QUICK_SEEDS = 12
"""Of a test over many seeds so many are quick; the others are for `make test-slow`."""

# A benchmark reads its peak memory from a module that Windows does not have.
collect_ignore_glob = ["unit/benchmarks/*"] if sys.platform == "win32" else []

FORKS = "it forks a process that has threads, which only Linux bears"
PROC = "it tells a process from a later one with the same number, or from a zombie, which takes Linux's /proc"
ENDED = "Windows does not say whether another process has ended, so its reservation counts as alive"
MODES = "Windows has no permission bits"

LINUX_ALONE = {
    "test_measuring_crashes.py": FORKS,
    "test_record_sums_crashes.py": FORKS,
    "test_resumed_mechanisms.py": FORKS,
    "test_a_ledger_object_serves_forked_processes": FORKS,
    "test_a_living_process_keeps_its_reservation_and_a_dead_one_loses_it": PROC,
    "test_a_recycled_process_id_does_not_keep_a_reservation": PROC,
}
NOT_WINDOWS = {
    "test_ledger_crashes.py": ENDED,
    "test_a_process_id_that_nobody_has_is_dead": ENDED,
    "test_without_a_start_time_a_running_process_counts_as_the_owner": ENDED,
    "test_leaving_a_lost_reservation_does_not_release_its_heir": ENDED,
    "test_new_files_get_the_permissions_of_any_new_file": MODES,
}


def pytest_collection_finish() -> None:
    """Tests and what they import stay till the end: to look through them for garbage takes a tenth of the time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (drawn := getattr(item, "callspec", None)) and drawn.indices.get("seed", 0) >= QUICK_SEEDS:
            item.add_marker(pytest.mark.slow)
    reasons = {} if sys.platform == "linux" else LINUX_ALONE
    if sys.platform == "win32":
        reasons = reasons | NOT_WINDOWS
    for item in items:
        for name in {item.path.name, item.name.partition("[")[0]} & reasons.keys():
            item.add_marker(pytest.mark.skip(reason=reasons[name]))
