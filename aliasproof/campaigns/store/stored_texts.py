"""`StoredTexts`: failures and findings as the texts that a store keeps, and back.

To read a program takes a tenth of a second: what it would allocate is bounded first. A campaign
reads what it has just written, several times, so the last ones are remembered by their text.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.store.finding import Finding
from aliasproof.campaigns.store.json_forms import (
    failure_from_json,
    failure_to_json,
    finding_from_json,
    finding_to_json,
)

REMEMBERED = 64


@dataclass(slots=True)
class StoredTexts:
    """Writes and reads texts. Reading raises what the JSON forms raise."""

    _values: OrderedDict[str, Any] = field(default_factory=OrderedDict)

    def of_failure(self, failure: Failure) -> str:
        """The text of a failure."""
        return self._noted(json.dumps(failure_to_json(failure)), failure)

    def of_finding(self, finding: Finding) -> str:
        """The text of a finding."""
        return self._noted(json.dumps(finding_to_json(finding)), finding)

    def failure(self, text: str) -> Failure:
        """The failure of a text."""
        if text not in self._values:
            self._noted(text, failure_from_json(json.loads(text)))
        found: Failure = self._values[text]
        return found

    def finding(self, text: str, where: str) -> Finding:
        """The finding of a text. `where` names the store in messages."""
        if text not in self._values:
            self._noted(text, finding_from_json(json.loads(text), where))
        found: Finding = self._values[text]
        return found

    def _noted(self, text: str, value: Failure | Finding) -> str:
        self._values[text] = value
        while len(self._values) > REMEMBERED:
            self._values.popitem(last=False)
        return text
