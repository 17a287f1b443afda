"""A compiler beyond torch that is missing, of another version or broken costs one line.

Its known bugs are listed even if it is missing.
"""

from importlib.metadata import EntryPoint, PackageNotFoundError

import pytest
import torch

from aliasproof import plugins
from aliasproof.compilers.executorch import executorch
from aliasproof.generators.features import Features, exclude_features
from aliasproof.plugins import CompilerPlugin
from aliasproof.targets import names, registry

REQUIRES = ['numpy>=2; extra == "planted"', 'compiler<2,>=1.4; extra == "planted"', "torch>=2"]


def planted_plugin(module: str, extra: str = "") -> CompilerPlugin:
    """A plug-in whose compiler is a module."""
    return CompilerPlugin("planted", "planted", {}, (module,), extra=extra)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch):
    """Sets what is installed. The extra `planted` needs numpy and a compiler."""
    installed = {"numpy": "2.1"}

    def version(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(plugins, "requires", lambda name: REQUIRES)
    monkeypatch.setattr(plugins, "version", version)
    plugins._missing.cache_clear()
    yield installed
    plugins._missing.cache_clear()


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "needs compiler: pip install 'aliasproof[planted]'"),
        ("1.3", "needs compiler<2,>=1.4, and finds 1.3: pip install 'aliasproof[planted]'"),
        ("1.5", None),
        ("1.5.post1", None),
        ("1.5rc1", None),
    ],
)
def test_it_is_said_what_to_install(planted, found: str | None, reason: str | None) -> None:
    if found is not None:
        planted["compiler"] = found
    assert planted_plugin("compiler", extra="planted").missing() == reason


def test_an_extra_that_an_old_installation_does_not_know_is_named(planted) -> None:
    reason = planted_plugin("compiler", extra="newer").missing()
    assert reason is not None
    assert "needs the extra 'newer', which this installation does not know" in reason


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("print('hello')", None),
        ("raise OSError('no library')", "ends with OSError: no library"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "ends with signal 11"),
        ("import time\ntime.sleep(30)", "takes over 2 s"),
        ("import sys\nsys.exit(3)", "ends with exit status 3"),
    ],
)
def test_a_compiler_that_cannot_be_imported_is_left_out_in_one_line(
    tmp_path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str | None
) -> None:
    (tmp_path / "planted_compiler.py").write_text(source)
    (tmp_path / "torch.py").write_text("")  # the real one takes seconds
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(plugins, "LOADS_WITHIN", 2.0)
    broken = planted_plugin("planted_compiler").broken()
    if reason is None:
        assert broken is None
    else:
        assert broken is not None
        assert broken.endswith(reason)
        assert "\n" not in broken


def test_a_plugin_with_a_mistake_is_named_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint(name, value, plugins.GROUP)
        for name, value in (
            ("gone", "absent_package:PLUGIN"),
            ("other", "aliasproof.compilers.onnx:PLUGIN"),
            ("none", "aliasproof.compilers.onnx:__name__"),
        )
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    monkeypatch.setattr(plugins, "BROKEN", {})
    monkeypatch.setattr(names, "BROKEN", plugins.BROKEN)
    assert plugins.plugins.__wrapped__() == {}
    assert "no CompilerPlugin with a target of this name" in plugins.BROKEN["other"]
    assert "no CompilerPlugin with a target of this name" in plugins.BROKEN["none"]
    assert "No module named 'absent_package'" in str(names.unknown("gone"))


def test_a_target_of_a_plugin_is_not_taken_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"planted": "absent:TARGET", "traced": "aot:AOT", "aot": "inductor:TARGET"}
    planted = CompilerPlugin("planted", "aliasproof.targets", places)
    monkeypatch.setattr(registry, "plugins", lambda: {"planted": planted})
    broken: dict[str, str] = {}
    monkeypatch.setattr(registry, "BROKEN", broken)
    before = dict(registry.TARGETS)
    registry._add_targets_of_plugins()
    assert before == registry.TARGETS
    assert broken.keys() == places.keys()


def test_a_group_stands_for_its_targets() -> None:
    assert names.expanded(["aot", names.ALL_COMPILERS]) == ["aot", "inductor", *plugins.plugins()]


# --- what needs no ExecuTorch ---------------------------------------------------------------------


def test_campaigns_draw_nothing_that_is_always_refused() -> None:
    drawn = exclude_features(Features(groups=("view", "foreach")), executorch.REFUSED)
    assert drawn.groups == ("view", "in-place")
    assert torch.complex64 not in drawn.dtypes
    assert torch.float32 in drawn.dtypes
    assert drawn.layouts == ("contiguous", "offset", "slack")


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("", ""),
        ("[op_x.cpp:3] Check failed (dim > 0): negative\n[method.cpp:7] failed\n", "Check failed"),
        (
            "[method.cpp:8] dtype\n[method.cpp:9] Missing operator: [0] aten::x\n",
            "Missing operator",
        ),
        ("[method.cpp:8] something else\n", "something else"),
    ],
)
def test_the_reason_of_an_error_is_in_the_log_of_the_runtime(log: str, reason: str) -> None:
    assert executorch._reason(log).startswith(reason)
