"""The memory of a planned graph, as text: where each result is, the peaks, and storages in time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

TIMELINE_LEGEND = (
    "A timeline has one row per storage, and time is from left to right. | begins a result, > says"
    " that it is returned.\nA size ? depends on tensor data, and counts as zero. The last row has"
    " the live bytes; where there is no room for them, in ninths of the peak."
)
WIDEST_COLUMN = 14  # characters of a timeline per call
SHOWN_ROWS = 40  # storages of a timeline; the largest, if there are more
NO_RESULTS = "No call has a result in memory of its own."


@dataclass(frozen=True, slots=True)
class ResultLocation:
    """The location of a call's result, and which other locations were refused, in words.

    The result is `new` if memory is allocated for it.
    """

    node: str
    op: str
    new: bool
    location: str
    refused: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.node} = {self.op}", f"  {self.location}"]
        if self.refused:
            lines += ["  because" if self.new else "  refused before that"]
        return "\n".join([*lines, *(f"    {refusal}" for refusal in self.refused)])


@dataclass(frozen=True, slots=True)
class StorageRow:
    """The life of a storage: the first and last call at which it is live, and its results.

    `storage` is its letter. `nbytes` is None for an input, whose memory is the caller's. It is
    `unknown` if it depends on tensor data, and then counts as zero. `results` has each call that
    writes a result to it, with its name. It outlives the graph if `kept`.
    """

    storage: str
    nbytes: int | None
    first: int
    last: int
    kept: bool
    results: tuple[tuple[int, str], ...]
    unknown: bool = False

    @property
    def size(self) -> str:
        if self.nbytes is None:
            return "input"
        return "?" if self.unknown else bytes_text(self.nbytes)


@dataclass(frozen=True, slots=True)
class StorageTimeline:
    """The storages of a graph over time; time counts the calls that allocate or write.

    `live` are the live bytes at each call, without inputs.
    """

    rows: tuple[StorageRow, ...]
    live: tuple[int, ...]

    @property
    def peak(self) -> int:
        """The largest number of bytes that are live at once."""
        return max(self.live, default=0)

    @property
    def allocations(self) -> int:
        """The number of storages that the graph allocates, without empty ones."""
        return sum(bool(row.nbytes) for row in self.rows)

    def drawn(self, width: int) -> str:
        """One line per storage, and one with the live bytes, all at most `width` wide."""
        return "\n".join(_drawn(self, width))


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The location of each call's result, and the storages of the three graphs over time."""

    locations: tuple[ResultLocation, ...]
    functional: StorageTimeline
    reinplaced: StorageTimeline
    planned: StorageTimeline

    def parts(self, width: int) -> Mapping[str, str]:
        """The plan as text, by title."""
        rows = [("graph", "peak bytes", "allocations")]
        for name, one in self._timelines.items():
            rows.append((name, f"{one.peak:,}", f"{one.allocations:,}"))
        peaks = max(len(peak) for _, peak, _ in rows)
        return {
            "results": "\n".join(map(str, self.locations)) or NO_RESULTS,
            "memory": "\n".join(
                f"{name:10}  {peak:>{peaks}}  {allocations:>11}" for name, peak, allocations in rows
            ),
            "timeline of the functional graph": self.functional.drawn(width),
            "timeline of the planned graph": self.planned.drawn(width),
        }

    @property
    def _timelines(self) -> Mapping[str, StorageTimeline]:
        names = ("functional", "reinplaced", "planned")
        return {name: getattr(self, name) for name in names}

    def to_json(self) -> dict[str, object]:
        return {
            "results": list(map(asdict, self.locations)),
            "memory": {
                name: {"peak": timeline.peak, "allocations": timeline.allocations}
                for name, timeline in self._timelines.items()
            },
            "timeline": asdict(self.planned),
        }


@dataclass(frozen=True, slots=True)
class _Scale:
    """Converts calls to characters: `width` characters per call, or `calls` calls per character."""

    width: int
    calls: int

    @classmethod
    def of(cls, count: int, room: int) -> _Scale:
        """The scale at which `count` calls fit into `room` characters."""
        return cls(min(room // count, WIDEST_COLUMN) or 1, -(-count // room))

    def start(self, call: int) -> int:
        return call * self.width // self.calls


def _drawn(timeline: StorageTimeline, width: int) -> Iterator[str]:
    if not timeline.rows:
        yield "Nothing is allocated, and no input is written."
        return
    # The largest storages, in their original order.
    by_size = sorted(timeline.rows, key=lambda row: -(row.nbytes or 0))
    least = {id(row) for row in by_size[:SHOWN_ROWS]}
    rows = [row for row in timeline.rows if id(row) in least]
    sizes = [row.size for row in rows]
    letters = max(len("live"), *(len(row.storage) for row in rows))
    numbers = max(len("bytes"), *map(len, sizes))
    scale = _Scale.of(len(timeline.live), max(width - letters - numbers - 4, 1))
    yield f"{'':{letters}}  {'bytes':>{numbers}}"
    for row, size in zip(rows, sizes, strict=True):
        yield f"{row.storage:{letters}}  {size:>{numbers}}  {_bar(row, scale)}"
    yield f"{'live':{letters}}  {'':{numbers}}  {_live(timeline.live, scale)}".rstrip()
    if len(rows) < len(timeline.rows):
        yield f"... and {len(timeline.rows) - len(rows)} smaller storages"


def _bar(row: StorageRow, scale: _Scale) -> str:
    """The life of a storage: `|` and a name at the start of each result, `>` if it is kept."""
    end = max(scale.start(row.last + 1), scale.start(row.first) + 1)
    starts = [*(scale.start(call) for call, _ in row.results), end]
    bar = [" "] * scale.start(row.first) + ["-"] * (end - scale.start(row.first))
    for (_, name), (start, stop) in zip(row.results, pairwise(starts), strict=True):
        room = stop - start - 1
        shown = name if len(name) <= room else name[:room] if room > 2 else ""
        bar[start : start + 1 + len(shown)] = ["|", *shown]
    if row.kept:
        bar[-1] = ">" if scale.width > 1 else bar[-1]
    elif scale.width > 2:
        bar[-1] = " "  # a gap to the next call
    return "".join(bar).rstrip()


def _live(live: Sequence[int], scale: _Scale) -> str:
    """The live bytes of each call; if there is no room, in ninths of the peak."""
    texts = list(map(bytes_text, live))
    if scale.calls == 1 and max(map(len, texts)) < scale.width:
        return "".join(f"{text:{scale.width}}" for text in texts).rstrip()
    peak = max(live) or 1
    characters = [""] * scale.start(len(live) - 1) + [""]
    for call, nbytes in enumerate(live):
        at = scale.start(call)
        characters[at] = max(characters[at], str(-(-9 * nbytes // peak)))
    return "".join(character or " " for character in characters)


def bytes_text(nbytes: int) -> str:
    """A number of bytes, in units of 1024 from 10,000 bytes on."""
    number, units = float(nbytes), iter("KMGTPE")
    unit = ""
    while number >= (10_000 if unit == "" else 1024):
        number, unit = number / 1024, next(units)
    return f"{number:.0f}{unit}" if unit == "" or number >= 100 else f"{number:.1f}{unit}"
