"""A Chromium that a test drives: DevTools' protocol over a pipe (file descriptors 3 and 4), so that nothing but the browser is needed.

    with Browser() as browser:
        page = browser.page(1280, 900)
        page.open("http://127.0.0.1:6060/#/runs")
        page.wait("document.title.startsWith('Runs')")

One thread. Every wait has an end: after SECONDS without what was waited for, Failed is raised with what it was."""
import base64
import json
import os
import select
import shutil
import signal
import tempfile
import time

SECONDS = 60
PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]
FLAGS = ["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage",
         "--disable-features=OptimizationHints,MediaRouter", "--hide-scrollbars", "--mute-audio", "--force-color-profile=srgb"]


class Failed(Exception):
    pass


def find():
    """The program, or None. One that only fetches a snap is none: it runs nowhere but on a desktop."""
    for place in PLACES:
        if os.path.exists(place) and b"snap" not in open(place, "rb").read(4096):
            return place
    return None


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="tandem-chromium-")
        self.number, self.answers, self.rest, self.handlers = 0, {}, b"", {}
        to_read, self.write = os.pipe()
        self.read, to_write = os.pipe()
        nothing = os.open(os.devnull, os.O_RDWR)
        # First to numbers out of the way: one of the ends may be 3 or 4 itself.
        moves = [(os.POSIX_SPAWN_DUP2, nothing, n) for n in (0, 1, 2)]
        moves += [(os.POSIX_SPAWN_DUP2, to_read, 63), (os.POSIX_SPAWN_DUP2, to_write, 64)]
        moves += [(os.POSIX_SPAWN_DUP2, 63, 3), (os.POSIX_SPAWN_DUP2, 64, 4), (os.POSIX_SPAWN_CLOSE, 63), (os.POSIX_SPAWN_CLOSE, 64)]
        program = find()
        self.process = os.posix_spawn(program, [program, *FLAGS, f"--user-data-dir={self.folder}", "about:blank"],
                                      {**os.environ, "HOME": self.folder}, file_actions=moves, setpgroup=0)
        for end in (to_read, to_write, nothing):
            os.close(end)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.write)
        os.close(self.read)
        try:
            os.killpg(self.process, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(self.process, 0)
        shutil.rmtree(self.folder, ignore_errors=True)

    def take(self, seconds):
        """Reads what has come, at most so long; calls handlers of events."""
        if not select.select([self.read], [], [], max(0, seconds))[0]:
            return
        data = os.read(self.read, 1 << 20)
        if not data:
            raise Failed("Chromium has ended")
        *messages, self.rest = (self.rest + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.answers[message["id"]] = message
            for handler in self.handlers.get((message.get("sessionId"), message.get("method")), []):
                handler(message["params"])

    def call(self, method, session=None, **parameters):
        self.number += 1
        mine, message = self.number, {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data):]
        end = time.monotonic() + SECONDS
        while mine not in self.answers:
            self.take(end - time.monotonic())
            if time.monotonic() > end:
                raise Failed(f"no answer to {method}")
        answer = self.answers.pop(mine)
        if "error" in answer:
            raise Failed(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def starts(self):
        try:
            return bool(self.call("Browser.getVersion"))
        except (Failed, BrokenPipeError):
            return False

    def page(self, width, height, dark=False):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        return Page(self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"], target, width, height, dark)


class Page:
    """`wrong` gathers what no page may do: errors on the console, exceptions, dialogs, requests to elsewhere than `home`."""

    def __init__(self, browser, session, target, width, height, dark):
        self.browser, self.session, self.target = browser, session, target
        self.wrong, self.home, self.expected = [], None, ()
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.on("Runtime.exceptionThrown", lambda p: self.wrong.append(p["exceptionDetails"].get("exception", {}).get("description", p["exceptionDetails"]["text"])))
        self.on("Runtime.consoleAPICalled", lambda p: p["type"] == "error" and self.wrong.append(f"on the console: {p['args']}"))
        self.on("Log.entryAdded", lambda p: self.log(p["entry"]))
        self.on("Network.requestWillBeSent", lambda p: self.check_request(p["request"]["url"]))
        self.on("Page.javascriptDialogOpening", lambda p: self.wrong.append(f"a dialog: {p['message']}"))

    def on(self, event, handler):
        self.browser.handlers.setdefault((self.session, event), []).append(handler)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def log(self, entry):
        if entry["level"] == "error" and not any(text in entry["text"] for text in self.expected):
            self.wrong.append(f"on the console: {entry['text']} {entry.get('url', '')}")

    def check_request(self, url):
        if self.home and not url.startswith((self.home, "data:", "about:", "blob:")):
            self.wrong.append(f"a request to {url}")

    def open(self, url):
        """Anew, even where only what is behind # differs."""
        for address in ("about:blank", url):
            loaded = []
            handler = loaded.append
            self.on("Page.loadEventFired", handler)
            self.call("Page.navigate", url=address)
            end = time.monotonic() + SECONDS
            while not loaded:
                self.browser.take(end - time.monotonic())
                if time.monotonic() > end:
                    raise Failed(f"{address} does not load")
            self.browser.handlers[(self.session, "Page.loadEventFired")].remove(handler)

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise Failed(f"{expression[:200]}: {answer['exceptionDetails'].get('exception', {}).get('description', answer['exceptionDetails']['text'])}")
        return answer["result"].get("value")

    def wait(self, expression, what=None):
        """Until it is true: looked at before every frame that the page draws."""
        self.value("new Promise((done, failed) => { const end = performance.now() + %d; const look = () => { let now = false; try { now = (%s); } catch { /* not there yet */ } "
                   "if (now) done(true); else if (performance.now() > end) failed(new Error(%s)); else requestAnimationFrame(look); }; look(); })"
                   % (1000 * (SECONDS - 10), expression, json.dumps(f"it never came: {what or expression}")))

    def mouse(self, kind, x, y, buttons=0):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left" if kind != "mouseMoved" else "none", buttons=buttons, clickCount=1)

    def drag(self, start, end, steps=5):
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, buttons=1)
        for i in range(1, steps + 1):
            self.mouse("mouseMoved", *[a + (b - a) * i / steps for a, b in zip(start, end)], buttons=1)
        self.mouse("mouseReleased", *end)

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" and len(key) == 1 else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **text)

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"]))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
