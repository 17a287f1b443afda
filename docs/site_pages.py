"""Pages of the site that are not in docs/: README, CONTRIBUTING, the first chapter, the reference.

A hook of MkDocs. The reference is what the commands print, so no page of it is kept.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from aliasproof.commands.command_line import COMMANDS, run

ROOT = Path(__file__).parents[1]


def on_files(files: Any, config: Any) -> Any:
    """Add the pages."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - pages are tested without it

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def pages() -> Mapping[str, str]:
    """The text of each page that is added."""
    return {
        "index.md": (ROOT / "README.md").read_text(encoding="utf-8"),
        "contributing.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
        "first_chapter.md": first_chapter(),
        "reference/commands.md": "# Commands\n\n" + "\n".join(commands()),
        "reference/targets.md": "# Targets\n\n" + "\n".join(targets()),
        "reference/limitations.md": (ROOT / "tests/samples/limitations.md").read_text("utf-8"),
        "reference/known_bugs.md": page("Known bugs", "known"),
        "reference/ops.md": page("Ops", "ops"),
    }


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between a file of the repository and docs/ are links between pages here."""
    if page.file.src_path in {"index.md", "contributing.md"}:
        markdown = markdown.replace("](docs/", "](")
    for name, target in LINKS.items():
        markdown = markdown.replace(f"]({name}", f"]({target}")
    # What else they lead to is code, which a site does not have.
    return re.sub(r"\[([^\]]+)\]\((\.\./[^)]*|LICENSE)\)", r"\1", markdown)


LINKS: Mapping[str, str] = {
    "../README.md": "index.md",
    "../CONTRIBUTING.md": "contributing.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "first_chapter.py": "first_chapter.md",
}


def printed(*arguments: str) -> str:
    """What a command prints."""
    text, width = io.StringIO(), {"COLUMNS": "100"}
    with contextlib.redirect_stdout(text), mock.patch.dict(os.environ, width):
        code = run(arguments)
    assert code == 0, arguments
    return text.getvalue()


def block(text: str) -> str:
    return f"````text\n{text.rstrip()}\n````\n"


def page(title: str, *arguments: str) -> str:
    return f"# {title}\n\n`aliasproof {' '.join(arguments)}` prints them.\n\n" + block(
        printed(*arguments)
    )


def commands() -> Iterator[str]:
    """The help of each command, in the groups of `--help`."""
    for title, group in COMMANDS.items():
        for name in (command.__name__ for command in group):
            yield f"## {name}\n\n{title}.\n\n{block(printed(name, '--help'))}"


def targets() -> Iterator[str]:
    """What each target and variant promises."""
    listed, _, variants = printed("targets").partition("\n\n")
    for line in listed.splitlines():
        name = line.partition(":")[0]
        yield f"## {name}\n\n{block(printed('targets', name))}"
    yield f"## Variants\n\n{block(variants)}"


def first_chapter() -> str:
    """Its prose, and the code between."""
    text = (ROOT / "docs" / "first_chapter.py").read_text(encoding="utf-8")
    _, prose, code = text.split('"""', 2)
    parts = [prose]
    for part in re.split(r"^# --- ", code, flags=re.MULTILINE):
        title, _, rest = part.partition("\n") if part is not code else ("", "", part)
        comment = re.match(r"(#.*\n)*", rest)
        assert comment is not None
        heading = title.rstrip("- ")
        parts.append(f"## {heading}" if heading else "")
        parts.append(re.sub(r"^# ?", "", comment[0], flags=re.MULTILINE))
        parts.append(f"```python\n{rest[comment.end() :].strip()}\n```")
    return "# The first chapter\n\n" + "\n\n".join(parts)
