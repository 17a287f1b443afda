"""`Status`: what became of a stored violation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Status:
    """What became of a stored violation in the installed torch.

    `word` is one of 'still there', 'another violation', 'documented', 'not judged', 'not run' and
    'gone'. `text` is a sentence.
    """

    word: str
    text: str

    @property
    def style(self) -> str:
        """The style of the sentence."""
        styles = {"gone": "bold green", "still there": "bold red", "another violation": "bold red"}
        return styles.get(self.word, "yellow")
