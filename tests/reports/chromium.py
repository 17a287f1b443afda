"""A headless Chromium, controlled through a pipe in its own protocol, for tests of pages.

https://chromedevtools.github.io/devtools-protocol; with `--remote-debugging-pipe`, messages are
JSON that ends with a zero byte, on the file descriptors 3 and 4. Only the browser must be
installed.
"""

import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MOVED = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
SECONDS = 20.0  # time limit of an answer


def browser() -> str | None:
    """The path of a browser; None if there is none. ALIASPROOF_BROWSER names another one."""
    named = os.environ.get("ALIASPROOF_BROWSER")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


@dataclass
class Chromium:
    """A browser with one page. `events` are all its reports, such as requests and errors."""

    _to: int
    _from: int
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _unread: bytes = b""

    def ask(self, method: str, **parameters: object) -> Any:
        """Send a command, and wait for its result."""
        number = next(self._numbers)
        command: dict[str, object] = {"id": number, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        ends = time.monotonic() + SECONDS
        while (message := self._message(ends)).get("id") != number:
            self.events.append(message)
        assert "error" not in message, message["error"]
        return message["result"]

    def _message(self, ends: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], max(ends - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            read = os.read(self._from, 1 << 20)
            assert read, "the browser has ended"
            self._unread += read
        text, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def open(self, file: Path, fragment: str = "") -> None:
        """Open a file, and wait until it is loaded."""
        self.events.clear()
        self.ask("Page.navigate", url=f"{file.absolute().as_uri()}{fragment}")
        self.until("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page, after its promises are resolved."""
        done = self.ask(
            "Runtime.evaluate",
            expression=script,
            returnByValue=True,
            awaitPromise=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until an expression is true."""
        ends = time.monotonic() + SECONDS
        while not self.run(condition):
            assert time.monotonic() < ends, f"never true: {condition}"
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """Press a key, such as 'Enter', 'Tab', 'a'."""
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.ask(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=codes.get(key, ord(key[0])),
                **more,
            )

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Give the page a size and a theme."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[theme])

    @property
    def requests(self) -> list[str]:
        """The addresses that the page requested."""
        asked = [it for it in self.events if it["method"] == "Network.requestWillBeSent"]
        return [it["params"]["request"]["url"] for it in asked]

    @property
    def errors(self) -> list[str]:
        """Errors and warnings in the console, and uncaught exceptions."""
        texts = []
        for event in self.events:
            parameters = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                texts.append(str(parameters["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] != "info":
                texts.append(str(parameters["entry"]["text"]))
            elif event["method"] == "Runtime.consoleAPICalled":
                texts.append(str(parameters["args"]))
        return texts


@contextlib.contextmanager
def chromium(path: str) -> Iterator[Chromium]:
    """Start a browser, and end it."""
    (our_read, second), (first, our_write) = os.pipe(), os.pipe()
    # The browser expects the pipes at 3 and 4, so they are first moved to other numbers.
    theirs = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (first, second)]
    launcher = [sys.executable, "-ISc", MOVED, *map(str, theirs)]
    arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
    arguments += ["--no-first-run", "--disable-extensions", "--disable-background-networking"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [*launcher, path, *arguments, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=theirs,
        )
        for descriptor in (first, second, *theirs):
            os.close(descriptor)
        try:
            page = Chromium(our_write, our_read)
            target = page.ask("Target.createTarget", url="about:blank")["targetId"]
            attached = page.ask("Target.attachToTarget", targetId=target, flatten=True)
            page.session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                page.ask(f"{domain}.enable")
            yield page
        finally:
            process.kill()
            process.wait()
            os.close(our_read)
            os.close(our_write)
