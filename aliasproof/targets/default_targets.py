"""The targets that a command means where none is named. Help texts name them without torch."""

from __future__ import annotations

# What a user of `torch.compile` runs. `inductor` generates code, so it needs a compiler.
CHECKED = ("aot-eager", "inductor-fx", "inductor")
# `functionalize` is tested through `fx-reinplace`, which builds on it. A violation that
# `functionalize` shows alone is attributed to it.
FUZZED = ("inductor-fx", "aot", "inductor", "fx-reinplace")
PROVED = ("functionalize", "fx-reinplace", "aot", "aot-epilogue", "reference")
