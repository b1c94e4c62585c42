"""A headless Chromium for tests of pages, driven by its DevTools protocol over a pair of pipes: no library is needed."""
import collections
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

ANSWER_SECONDS = 60  # a browser that does not answer for so long hangs, whatever else the machine does


class Browser:
    """`with Browser() as browser:` starts one with a profile of its own; the end of the block ends it."""

    def __init__(self):
        program = shutil.which("chromium")
        if not program:
            raise SystemExit("no chromium: sh tests/install_deps.sh chromium")
        self.profile = tempfile.mkdtemp(prefix="switchyard-chromium-")
        to_browser, self.out = os.pipe()
        self.inp, from_browser = os.pipe()
        # It reads from 3 and writes to 4. As root, and in containers, its own sandbox cannot be made; it sees our pages only.
        line = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(
            ["bash", "-c", line, "chromium", program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             f"--user-data-dir={self.profile}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.n_calls, self.buffer, self.events = 0, b"", collections.deque()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.process.wait(20)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.inp)
        shutil.rmtree(self.profile, ignore_errors=True)

    def read(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.inp], [], [], max(0, deadline - time.monotonic()))[0]:
                raise RuntimeError(f"the browser said nothing for {ANSWER_SECONDS} s")
            more = os.read(self.inp, 1 << 16)
            if not more:
                raise RuntimeError("the browser ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **params):
        """The answer's result; events that come before it are kept in .events."""
        self.n_calls += 1
        message = {"id": self.n_calls, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            got = self.read(deadline)
            if got.get("id") == self.n_calls:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error'].get('message')}")
                return got["result"]
            if "method" in got:
                self.events.append(got)


class Tab:
    """A page that is open. What it writes to the console as an error is collected."""

    def __init__(self, browser, url, width=1280, height=900):
        self.browser, self.said = browser, []
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height)
        self.call("Page.navigate", url=url)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, **features):
        """media(prefers_color_scheme="dark")"""
        self.call("Emulation.setEmulatedMedia", features=[{"name": k.replace("_", "-"), "value": v} for k, v in features.items()])

    def js(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise RuntimeError(f"{expression}: {got['exceptionDetails']['exception'].get('description')}")
        return got["result"].get("value")

    def wait(self, expression, what, seconds=60):
        """Until the expression is true; its value, or True for an element."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.js(f"((value) => value instanceof Node || value)({expression})")
            if value:
                return value
            assert time.monotonic() < deadline, f"{what}: not within {seconds} s: {expression[:300]}"
            time.sleep(0.05)

    def key(self, key, code=None):
        """Pressed and let go: "Tab", "ArrowRight", "Enter"."""
        numbers = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35}
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, windowsVirtualKeyCode=numbers[key], **text)

    def click(self, expression):
        """With the mouse, in the middle of the element that the expression gives: it must be in sight and not covered. Where a new layout
        moved it away under the mouse, once more."""
        for _ in range(5):
            at = self.js(f"""(() => {{ const e = {expression}; e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();
                const x = r.x + r.width / 2, y = r.y + r.height / 2, hit = document.elementFromPoint(x, y);
                window.wasHit = false;
                e.addEventListener('click', () => {{ window.wasHit = true; }}, {{once: true, capture: true}});
                return {{x, y, covered: !e.contains(hit)}}; }})()""")
            assert not at["covered"], f"{expression} is covered"
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=at["x"], y=at["y"], button="left", clickCount=1)
            if self.js("window.wasHit"):
                return
        raise AssertionError(f"{expression} did not get a click")

    def errors(self):
        """What was written to the console as error or warning, and what was thrown, since the last call."""
        self.js("1")
        found, rest = [], collections.deque()
        for event in self.browser.events:
            method, params = event["method"], event["params"]
            if event.get("sessionId") != self.session:
                rest.append(event)
            elif method == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"].get("exception", {}).get("description", "an exception"))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(str(params["args"]))
        self.browser.events = rest
        return found

    def screenshot(self, path):
        import base64

        with open(path, "wb") as out:
            out.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
