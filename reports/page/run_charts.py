"""The yield of a run over time, as lines in pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aliasproof.campaigns.store.run_view import Moment
from aliasproof.reports.wording import clock

WIDTH, HEIGHT = 320, 72  # of a picture
MOST_POINTS = 160


@dataclass(frozen=True, slots=True)
class Chart:
    """A line that rises from 0 to `top` in `seconds`; `points` are for a polyline of SVG."""

    title: str
    points: str
    top: int
    end: str

    @property
    def label(self) -> str:
        """The line in words, for a screen reader."""
        return f"{self.title}: {self.top} after {self.end}"


def charts(moments: Sequence[Moment]) -> list[Chart]:
    """What a run found, and what it ran, over time; none for a run that was merged from others."""
    if len(moments) < 2:
        return []
    step = -(-len(moments) // MOST_POINTS)
    shown = [*moments[:-1:step], moments[-1]]
    lines = {
        "findings": [moment.findings for moment in shown],
        "programs with a violation": [moment.violating for moment in shown],
        "programs": [moment.programs for moment in shown],
    }
    times = [moment.elapsed for moment in shown]
    return [_chart(title, times, values) for title, values in lines.items()]


def _chart(title: str, times: Sequence[float], values: Sequence[int]) -> Chart:
    last, top = max(times[-1], 1e-9), max(*values, 1)
    points = [
        (0.0, 0.0),
        *((time / last, value / top) for time, value in zip(times, values, strict=True)),
    ]
    text = " ".join(f"{x * WIDTH:.1f},{HEIGHT - y * (HEIGHT - 4):.1f}" for x, y in points)
    return Chart(title, text, max(values), clock(times[-1]))
