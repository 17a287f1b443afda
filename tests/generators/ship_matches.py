"""Writes the matches that the package contains for the installed torch; takes some minutes.

`python tests/generators/ship_matches.py`. Matches of freezing are excluded: a search for one takes
up to six seconds, and few shards need them.
"""

import gzip
import json
import multiprocessing

from aliasproof.generators.rules.derived import (
    Found,
    found_to_json,
    key_of,
    look_up,
    numbers_of,
    rules_of_torch,
    shipped,
    shipped_file,
)
from aliasproof.generators.rules.plain_matches import KINDS, plain_match, variant_of


def matches_of(rule: str) -> dict[tuple[str, int], Found]:
    """All matches of a rule, or why there is none."""
    pairs = [(kind, number) for kind in KINDS for number in range(numbers_of(rule))]
    return {pair: look_up(plain_match, rule, *pair) for pair in pairs}


def main() -> None:
    """Search, and write the file."""
    shipped_file().unlink(missing_ok=True)
    shipped.cache_clear()
    by_hand, _, traced = groups = rules_of_torch()
    rules = [rule for rule in (*by_hand, *traced) if variant_of(rule) != "freezing"]
    with multiprocessing.Pool() as pool:
        found = dict(zip(rules, pool.imap(matches_of, rules), strict=True))
    data = {
        "rules": groups,
        "numbers": {rule: numbers_of(rule) for rule in rules},
        "matches": {
            key_of(rule, *pair): found_to_json(match)
            for rule, matches in found.items()
            for pair, match in matches.items()
        },
    }
    text = json.dumps(data, separators=(",", ":")).encode()
    shipped_file().write_bytes(
        gzip.compress(text, mtime=0)
    )  # no date, so that equal files are equal


if __name__ == "__main__":
    main()
