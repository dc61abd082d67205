"""A headless Chromium, driven over a pipe by its DevTools protocol. Standard library only."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find():
    """The Chromium that is installed, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page after another. `problems` has what the console reports: exceptions, errors, what was blocked."""

    def __init__(self):
        self.folder = tempfile.mkdtemp()
        to_browser, self.output = os.pipe()
        self.input, from_browser = os.pipe()

        options = (
            "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb",
            "--remote-debugging-pipe", f"--user-data-dir={self.folder}", "about:blank",
        )
        # It reads from descriptor 3 and writes to 4.
        script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(
            ("sh", "-c", script, "sh", find(), *options), pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser), os.close(from_browser)
        self.buffer, self.number, self.events, self.problems = b"", 0, [], []
        self.session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def message(self):
        while b"\0" not in self.buffer:
            more = os.read(self.input, 1 << 20)
            if not more:
                raise EOFError("the browser ended")
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.output, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.note(answer)

    def note(self, event):
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.problems.append(" ".join(str(arg.get("description", arg.get("value"))) for arg in params["args"]))
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"])
        elif event.get("method") == "Page.javascriptDialogOpening":
            self.problems.append("a dialog opened: " + params["message"])

    def size(self, width, height, dark=False):
        """The window, in pixels, and the colors that the user prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])

    def open(self, path, hash="", limit_s=60):
        """Opens a page of gctrace. Returns how many seconds it took until all was drawn."""
        self.call("Page.navigate", url="about:blank")
        self.problems.clear()
        started = time.monotonic()
        self.call("Page.navigate", url="file://" + os.path.abspath(path) + hash)
        while time.monotonic() < started + limit_s:
            if self.run("document.documentElement && 'ready' in document.documentElement.dataset"):
                return time.monotonic() - started
            time.sleep(0.02)
        raise TimeoutError(f"{path} is not drawn: {self.problems}")

    def run(self, script):
        """The value of an expression; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def press(self, key):
        """A key, as its name in JavaScript."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {}))

    def picture(self, path, selector=None, height=None):
        """A PNG of the whole page, of its first `height` pixels, or of what a selector names."""
        box = self.run(
            "(() => { const box = " + (f"document.querySelector({json.dumps(selector)})" if selector else "document.documentElement")
            + ".getBoundingClientRect(); return [box.x + scrollX, box.y + scrollY, box.width, box.height]; })()")
        clip = dict(zip(("x", "y", "width", "height"), box), scale=1)
        clip["height"] = min(clip["height"], height or 1e9)
        data = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
