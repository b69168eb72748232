"""A real Chromium, driven by its own driver over plain HTTP."""

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")


class Browser:
    """A browser as wide as a desk or a phone, with a profile of its own, that writes down what it asks the network."""

    def __init__(self, place: Path, width: int, height: int = 900) -> None:
        self.width = width
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.driver = subprocess.Popen([str(DRIVER), f"--port={self.port}"], **quiet)
        off = ["background-networking", "component-update", "sync", "quic", "gpu"]
        arguments = ["--headless=new", "--no-sandbox", "--no-first-run", *(f"--disable-{each}" for each in off)]
        metrics = {"width": width, "height": height, "pixelRatio": 1, "mobile": width < 600}
        options = {
            "binary": CHROMIUM,
            "args": [*arguments, f"--user-data-dir={place}", f"--window-size={width},{height}"],
            "mobileEmulation": {"deviceMetrics": metrics},
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self.session = ""
        started = self._patiently("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = f"/session/{started['sessionId']}"

    def _patiently(self, method: str, path: str, body: Any) -> Any:
        for _ in range(150):
            try:
                return self.ask(method, path, body)
            except (ConnectionError, urllib.error.URLError):
                time.sleep(0.2)
        raise TimeoutError("the browser's driver does not answer")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        address = f"http://127.0.0.1:{self.port}{self.session}{path}"
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()[:500]) from None

    def open(self, page: Path, fragment: str = "") -> None:
        self.ask("POST", "/url", {"url": "about:blank"})
        self.ask("POST", "/url", {"url": page.as_uri() + (f"#{fragment}" if fragment else "")})
        self.settled()

    def settled(self) -> None:
        for _ in range(300):
            if not self.run("return document.getElementById('status').textContent.startsWith('Working')"):
                return
            time.sleep(0.1)
        raise TimeoutError("the page is still working")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def press(self, keys: str) -> None:
        steps = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": steps}]})

    def said(self, kind: str) -> list[str]:
        return [each["message"] for each in self.ask("POST", "/se/log", {"type": kind})]

    def requests(self) -> list[str]:
        """The addresses that the page asked for since it was last asked."""
        told = [json.loads(message)["message"] for message in self.said("performance")]
        return [each["params"]["request"]["url"] for each in told if each["method"] == "Network.requestWillBeSent"]

    def photograph(self, path: Path) -> None:
        found = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        try:
            self.ask("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait(timeout=30)
