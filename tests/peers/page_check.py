#!/usr/bin/env python3
"""The live page in headless Chromium, on a real server with models that answer and jobs that train: what it shows changes, its buttons act,
foreign pages cannot press them, it fits narrow screens, and it comes back when the server does. Run by `make test` with SY_BINARY; prints a
line a test, as the other tests do."""
import contextlib
import http.client
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/peers"))
from chromium import Browser, Tab  # noqa: E402
from checks import wait_for  # noqa: E402

BINARY = os.path.abspath(os.environ.get("SY_BINARY", os.path.join(ROOT, "build/switchyard")))
BUILD = os.path.dirname(BINARY)
TOKEN = "correct-horse-battery"
LANES = ("storage", "link", "inference", "training")
MARKUP = "<img src=x onerror=document.title='hit'>"


# ---- a server ----------------------------------------------------------------------------------------------------


def packages():
    """{name: package} of the small models, made once a build."""
    subprocess.run([os.path.join(BUILD, "make-models"), "--out", os.path.join(BUILD, "test-models"), "tiny_cnn", "mlp", "bert_tiny", "identity"],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run([os.path.join(BUILD, "make-models"), "--out", os.path.join(BUILD, "job-models"), "mnist_cnn"], check=True,
                   stdout=subprocess.DEVNULL)
    made = {}
    for name in ("tiny_cnn", "mlp", "bert_tiny"):
        folder = os.path.join(BUILD, "test-models", name, "1")
        subprocess.run([BINARY, "import", f"{folder}/model.onnx", "--name", name, "--update"], check=True, stdout=subprocess.DEVNULL)
        made[name] = f"{folder}/model.sypkg"
    return made


def named_markup(folder):
    """A package whose model's name is markup."""
    path = os.path.join(folder, "markup.sypkg")
    subprocess.run([BINARY, "import", os.path.join(BUILD, "test-models/identity/1/model.onnx"), "-o", path, "--name", MARKUP], check=True,
                   stdout=subprocess.DEVNULL)
    return path


def repository(folder):
    """One model that can be served, one that cannot."""
    for name in ("in_folder", "broken"):
        os.makedirs(os.path.join(folder, "models", name, "1"))
    shutil.copy(os.path.join(BUILD, "test-models/tiny_cnn/1/model.onnx"), os.path.join(folder, "models/in_folder/1/model.onnx"))
    with open(os.path.join(folder, "models/broken/1/model.onnx"), "w", encoding="utf-8") as out:
        out.write("no model")
    return os.path.join(folder, "models")


class Server:
    """`switchyard serve` with the small models and this many endless jobs; on `port`, 0 for any."""

    def __init__(self, folder, made, jobs=("first", "second"), port=0, arguments=()):
        self.socket, self.log = os.path.join(folder, "socket"), os.path.join(folder, "log")
        named = [option for package in made.values() for option in ("--package", package)]
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [BINARY, "serve", "--socket", self.socket, "--http", f"127.0.0.1:{port}", "--grpc", "off", "--metrics", "off", "--workers", "3",
                 "--device", "emulated,link-gbps=2", "--pool-bytes", "256Mi", "--image-bytes", "256Mi", "--slab-bytes", "64Mi",
                 "--hang-timeout", "60", *named, *arguments],
                stdout=subprocess.PIPE, stderr=log, env=dict(os.environ, SY_LOG="info"))
        assert self.process.stdout.readline() == b"ready\n", self.logged()
        self.port = int(re.search(r"event=listening what=http port=(\d+)", self.logged()).group(1))
        self.url = f"http://127.0.0.1:{self.port}/"
        for name in jobs:
            self.train(folder, name)

    def logged(self):
        with open(self.log, encoding="utf-8") as text:
            return text.read()

    def train(self, folder, name):
        job = {"name": name, "model": os.path.join(BUILD, "job-models/mnist_cnn/1/model.onnx"), "batch": 8, "epochs": 1000000000,
               "optimizer": {"kind": "sgd", "learning_rate": 0.01}, "data": {"kind": "synthetic", "samples": 32}}
        path = os.path.join(folder, "job.json")
        with open(path, "w", encoding="utf-8") as out:
            json.dump(job, out)
        subprocess.run([BINARY, "train", path, "--socket", self.socket], check=True, stdout=subprocess.DEVNULL)

    def infer(self, model, repeat=1):
        subprocess.run([BINARY, "infer", model, "--repeat", str(repeat), "--socket", self.socket], check=True, stdout=subprocess.DEVNULL)

    def status(self):
        return json.loads(subprocess.run([BINARY, "status", "--json", "--socket", self.socket], check=True, stdout=subprocess.PIPE).stdout)

    def job(self, name):
        return next(job for job in self.status()["jobs"] if job["name"] == name)

    def model(self, name):
        return next((model for model in self.status()["models"] if model["name"] == name), None)

    def request(self, method, path, body=None, **headers):
        """(code, headers, body); header names with _ for -."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {key.replace("_", "-"): value for key, value in headers.items()})
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            connection.close()

    def end(self):
        """SIGTERM; what is left is killed. Its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            self.process.stdout.close()


# ---- where things are on the page --------------------------------------------------------------------------------


def row(model):
    return f"[...document.querySelectorAll('#models tbody tr')].find((r) => r.querySelector('.name').textContent === {json.dumps(model)})"


def card(job):
    return f"[...document.querySelectorAll('#jobs > li')].find((c) => c.querySelector('.name').textContent === {json.dumps(job)})"


def button(within, text):
    return f"[...{within}.querySelectorAll('button')].find((b) => b.textContent === {json.dumps(text)} && !b.hidden)"


def ready(tab):
    tab.wait(f"{row('bert_tiny')} && {card('first')} && document.querySelectorAll('#map button').length", "models, jobs and pool")


# ---- tests: each has a server, and a tab of its own ----------------------------------------------------------------


def test_shows_and_changes(server, tab):
    ready(tab)
    assert tab.js("document.querySelectorAll('#models tbody tr').length") == 6
    assert tab.js("document.querySelectorAll('#workers tbody tr').length") == 3
    step = f"{card('first')}.textContent.match(/step ([0-9,]+)/)[1]"
    before = tab.js(step)
    tab.wait(f"{step} !== {json.dumps(before)}", "the step moves")
    points = f"{card('first')}.querySelector('polyline').getAttribute('points')"
    tab.wait(f"({points} || '').split(' ').length > 3", "the loss curve grows")
    server.infer("bert_tiny", 5)
    tab.wait(f"parseFloat({row('bert_tiny')}.querySelector('[data-label=\"Requests/s\"]').textContent) > 0", "the rate of requests")
    tab.wait(f"/s$/.test({row('bert_tiny')}.querySelector('[data-label=Latency]').textContent)", "their latency")


def is_drawn(tab, lane):
    """Whether the lane's row of the timeline has anything in it."""
    return tab.js(f"""(() => {{
        const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
        const empty = [numbers(getComputedStyle(document.querySelector('.meter')).backgroundColor),
                       numbers(getComputedStyle(document.querySelector('section')).borderTopColor)];
        const canvas = document.getElementById('timeline'), ratio = canvas.width / canvas.clientWidth;
        const copy = document.createElement('canvas');
        [copy.width, copy.height] = [canvas.width, canvas.height];
        const context = copy.getContext('2d', {{willReadFrequently: true}});
        context.drawImage(canvas, 0, 0);
        const row = context.getImageData(80 * ratio, (28 * {LANES.index(lane)} + 14) * ratio, canvas.width - 81 * ratio, 8 * ratio).data;
        const isFar = (i, colour) => [0, 1, 2].reduce((sum, k) => sum + Math.abs(row[i + k] - colour[k]), 0) > 60;
        for (let i = 0; i < row.length; i += 4) if (empty.every((colour) => isFar(i, colour))) return true;
        return false; }})()""")


def test_timeline(server, tab):
    ready(tab)
    wait_for(lambda: is_drawn(tab, "training"), "training is drawn")
    server.infer("bert_tiny", 20)
    wait_for(lambda: is_drawn(tab, "inference"), "inference is drawn")
    picture = "document.getElementById('timeline').toDataURL()"
    before = tab.js(picture)
    tab.wait(f"{picture} !== {json.dumps(before)}", "it moves")
    tab.click("document.getElementById('hold')")
    tab.wait("document.getElementById('hold').getAttribute('aria-pressed') === 'true'", "it is held")
    held, steps = tab.js(picture), f"{card('first')}.textContent.match(/step ([0-9,]+)/)[1]"
    tab.wait(f"{steps} !== {json.dumps(tab.js(steps))}", "ticks come")
    assert tab.js(picture) == held, "it stands still"
    tab.js("document.getElementById('timeline').focus()")
    tab.key("End")
    for _ in range(3):
        tab.key("ArrowLeft")
    tab.wait("/^-0\\.\\d+ s: /.test(document.getElementById('timeline-detail').textContent)", "words for the place of the cursor")


def test_pause_and_resume(server, tab):
    ready(tab)
    state = f"{card('first')}.querySelector('.state').textContent"
    tab.click(button(card("first"), "Pause"))
    tab.wait(f"{state} === 'suspended'", "it is shown as suspended")
    assert server.job("first")["state"] == "suspended"
    tab.js(f"{button(card('first'), 'Resume')}.focus()")
    tab.key("Enter")
    tab.wait(f"{state} !== 'suspended'", "it goes on")
    assert server.job("first")["state"] != "suspended"
    assert tab.js(f"document.activeElement === {card('first')}.querySelector('button')"), "the focus stays on the button"


def test_priority(server, tab):
    ready(tab)
    field = f"{card('first')}.querySelector('input')"
    tab.js(f"(() => {{ const f = {field}; f.focus(); f.value = '-7'; f.dispatchEvent(new Event('change')); f.blur(); }})()")
    wait_for(lambda: server.job("first")["priority"] == -7, "the priority is set")
    tab.js(f"(() => {{ const f = {field}; f.value = '5000'; f.dispatchEvent(new Event('change')); }})()")
    tab.wait("document.getElementById('said').className === 'bad'", "a priority out of range is refused")
    tab.wait(f"{field}.value === '-7'", "and what holds is shown")


def test_policy(server, tab):
    ready(tab)
    for policy in ("srtf", "fair"):
        tab.js(f"(() => {{ const s = document.getElementById('policy'); s.value = '{policy}'; s.dispatchEvent(new Event('change')); }})()")
        wait_for(lambda: server.status()["rules"]["policy"] == policy, f"the policy is {policy}")
        tab.wait(f"document.getElementById('policy').value === '{policy}' && !document.getElementById('policy').disabled", "it is shown")


def test_evict_and_unload(server, tab):
    ready(tab)
    server.infer("tiny_cnn")
    wait_for(lambda: server.model("tiny_cnn")["resident_bytes"] > 0, "it is resident")
    tab.click(button(row("tiny_cnn"), "Evict"))
    tab.wait(f"{row('tiny_cnn')}.querySelector('.resident').textContent.startsWith('0 B of')", "it is shown as gone from the pool")
    assert server.model("tiny_cnn")["resident_bytes"] == 0
    tab.click(button(row("mlp"), "Unload"))
    tab.wait(f"!{row('mlp')}", "the row is gone")
    assert server.model("mlp") is None


def test_repository(server, tab):
    state = "{0} && {0}.querySelector('.state').textContent === '{1}'"
    tab.wait(state.format(row("broken"), "unavailable"), "a model that cannot be loaded is listed")
    assert tab.js(f"{row('broken')}.querySelector('.why').textContent.length") > 10, "with its reason"
    tab.click(button(row("broken"), "Load"))
    tab.wait("/^load broken: ./.test(document.getElementById('said').textContent)", "why it still cannot")
    assert tab.js("document.getElementById('said').className") == "bad"
    tab.wait(state.format(row("in_folder"), "ready"), "the other one is served")
    tab.click(button(row("in_folder"), "Unload"))
    tab.wait(state.format(row("in_folder"), "unloaded"), "unloaded")
    assert server.model("in_folder") is None
    tab.click(button(row("in_folder"), "Load"))
    tab.wait(state.format(row("in_folder"), "ready"), "loaded again")
    assert server.model("in_folder")["state"] == "ready"
    tab.errors()  # the refused POST's 4xx


def test_map_by_keyboard(server, tab):
    ready(tab)
    server.infer("bert_tiny")
    tab.wait("[...document.querySelectorAll('#map button')].some((b) => b.getAttribute('aria-label').startsWith('bert_tiny'))", "the model's block")
    tab.js("document.querySelector('#map button[tabindex=\"0\"]').focus()")
    for key in ("End", "Home", "ArrowRight"):
        tab.key(key)
    assert tab.js("[...document.querySelectorAll('#map button')].indexOf(document.activeElement)") == 1
    assert tab.js("document.getElementById('map-detail').textContent === document.activeElement.getAttribute('aria-label')")
    assert tab.js("[...document.querySelectorAll('#map button')].filter((b) => b.tabIndex === 0).length") == 1


def test_every_control_by_tab(server, tab):
    ready(tab)
    tab.click(button(card("first"), "Pause"))
    tab.wait(button(card("first"), "Resume"), "paused")
    tab.js("document.activeElement.blur()")
    wanted = tab.js("[...document.querySelectorAll('button, select, input, canvas')].filter((e) => e.tabIndex >= 0 && !e.disabled && e.checkVisibility()).length")
    seen = 0
    for _ in range(3 * wanted):
        tab.key("Tab")
        at = tab.js("""(() => { const e = document.activeElement; if (e === document.body) return null;
            const isNew = !e.dataset.wasFocused; e.dataset.wasFocused = '1';
            return {isNew, tag: e.tagName, visible: e.checkVisibility(), outline: getComputedStyle(e).outlineStyle}; })()""")
        if at:
            assert at["visible"] and at["outline"] != "none", f"the focus is not seen: {at}"
            seen += at["isNew"]
        if seen >= wanted:
            break
    assert seen >= wanted, f"Tab reaches {seen} of {wanted} controls"
    tab.click(button(card("first"), "Resume"))
    tab.wait(button(card("first"), "Pause"), "it goes on")


def test_names_are_text(server, tab):
    tab.wait(row(MARKUP), "the model whose name is markup, as text")
    assert tab.js("document.querySelectorAll('main img').length") == 0
    assert tab.js("document.title") == "Switchyard"


def test_fits_360(server, tab):
    tab.size(360, 740)
    ready(tab)
    tab.wait("document.documentElement.scrollWidth <= 360", "no wider than the screen")
    out = tab.js("""[...document.querySelectorAll('button, select, input, canvas, section, dd, td')].filter((e) => {
        const r = e.getBoundingClientRect(); return e.checkVisibility() && (r.left < 0 || r.right > 360.5); }).map((e) => e.outerHTML.slice(0, 80))""")
    assert not out, out
    tab.click(button(row("bert_tiny"), "Evict"))
    tab.wait("/evict bert_tiny: done/.test(document.getElementById('said').textContent)", "buttons act there, too")


def test_light_and_dark(server, tab):
    ready(tab)
    colours = "JSON.stringify(['body', 'section', 'button'].map((s) => getComputedStyle(document.querySelector(s)).backgroundColor))"
    tab.media(prefers_color_scheme="light")
    light = tab.js(colours)
    tab.media(prefers_color_scheme="dark")
    dark = tab.js(colours)
    assert all(a != b for a, b in zip(json.loads(light), json.loads(dark))), (light, dark)
    tab.click("document.getElementById('theme')")  # light, whatever the system says
    assert tab.js(colours) == light
    tab.call("Page.reload")
    ready(tab)
    assert tab.js(colours) == light, "the choice is kept"
    tab.js("localStorage.clear()")


def test_reduced_motion(server, tab):
    tab.media(prefers_reduced_motion="reduce")
    ready(tab)
    assert tab.js("getComputedStyle(document.querySelector('.meter > i')).transitionDuration") == "0s"
    picture = "document.getElementById('timeline').toDataURL()"
    before = tab.js(picture)
    server.infer("bert_tiny", 3)
    tab.wait(f"{picture} !== {json.dumps(before)}", "it still says what is new, tick by tick")


@contextlib.contextmanager
def foreign_site(target):
    """Another site, whose page sends what a browser lets it send to our server."""
    page = f"""<script>
        const tries = [['text/plain', 'no-cors'], ['application/x-www-form-urlencoded', 'no-cors'], ['application/json', 'cors']];
        Promise.allSettled(tries.map(([type, mode]) =>
          fetch('{target}api/policy', {{method: 'POST', mode, headers: {{'Content-Type': type}}, body: '{{"policy": "rr"}}'}})))
          .then(() => {{ document.title = 'tried'; }});</script>""".encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_):
            pass

    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    try:
        yield f"http://localhost:{site.server_address[1]}/"
    finally:
        site.shutdown()
        site.server_close()


def test_foreign_page_cannot_act(server, tab):
    policy = server.status()["rules"]["policy"]
    with foreign_site(server.url) as url:
        other = Tab(tab.browser, url)
        other.wait("document.title === 'tried'", "the foreign page has tried")
        other.errors()
    assert server.status()["rules"]["policy"] == policy != "rr"


def test_posts_that_are_refused(server, tab):
    json_type, body = {"Content_Type": "application/json"}, '{"policy": "rr"}'
    own = f"127.0.0.1:{server.port}"
    for code, headers in [(415, {"Content_Type": "text/plain"}), (415, {}), (403, {**json_type, "Origin": "http://evil.example"}),
                          (403, {**json_type, "Sec_Fetch_Site": "cross-site"}), (403, {**json_type, "Host": f"evil.example:{server.port}"}),
                          (403, {**json_type, "Origin": "null"})]:
        got, _, answer = server.request("POST", "/api/policy", body, **headers)
        assert got == code and "error" in json.loads(answer), (headers, got, answer)
    for code, path, body in [(400, "/api/policy", '{"policy": "none"}'), (400, "/api/policy", "{"), (404, "/api/jobs/99/pause", "{}"),
                             (400, "/api/jobs/x/pause", "{}"), (400, "/api/jobs/1/priority", '{"priority": 1.5}'),
                             (400, "/api/jobs/1/priority", "[]"), (404, "/api/models/nobody/evict", "{}"), (405, "/", "{}")]:
        got, _, answer = server.request("POST", path, body, **json_type)
        assert got == code, (path, body, got, answer)
    assert server.request("POST", "/api/policy", "{}", **json_type, Origin=f"http://{own}", Host=own)[0] == 200


def test_files(server, tab):
    code, headers, body = server.request("GET", "/")
    assert code == 200 and headers["Content-Type"].startswith("text/html") and headers["Content-Security-Policy"].startswith("default-src 'self'")
    with open(os.path.join(ROOT, "runtime/front/page/page.html"), "rb") as file:
        assert body == file.read()
    assert server.request("GET", "/", If_None_Match=headers["ETag"])[0] == 304
    assert server.request("HEAD", "/")[2] == b"" and server.request("HEAD", "/events")[0] == 200
    for name in sorted(os.listdir(os.path.join(ROOT, "runtime/front/page"))):
        wanted = 200 if name.endswith((".html", ".css", ".js", ".svg")) else 404
        assert server.request("GET", f"/page/{name}")[0] == wanted, name
    assert server.request("GET", "/page/%2e%2e%2fpage.html")[0] == 404


def test_ticks_say_what_status_says(server, tab):
    """The parts of the status, put together, are the status; the pool's coarse map has no hole and no overlap."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/events")
    reply, ticks = connection.getresponse(), []
    while len(ticks) < 3:
        line = reply.readline()
        if line.startswith(b"data: ") and b'"models_from"' in line:
            ticks.append(json.loads(line[6:]))
    connection.close()
    status = server.status()
    assert {model["name"] for model in ticks[-1]["models"]} == {model["name"] for model in status["models"]}
    assert [job["job"] for job in ticks[-1]["jobs"]] == [job["job"] for job in status["jobs"]]
    assert (ticks[-1]["models_from"], ticks[-1]["models_to"], ticks[-1]["jobs_to"]) == (0, 256, None)
    at = 0
    for block in ticks[-1]["pool"]["blocks"]:
        assert block["offset"] == at
        at += block["bytes"]
    assert at == status["pool"]["bytes"]
    spans = [span for tick in ticks for span in tick["timeline"]["spans"]]
    assert all(0 <= lane < 4 and start < end and 0 < busy <= end - start and n > 0 for lane, _, start, end, busy, n in spans)
    assert not any("path" in model for model in ticks[-1]["models"])


def test_as_many_listeners_as_there_may_be(server, tab):
    ready(tab)
    ask = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    streams = []
    try:
        while True:  # none of them reads on: they hold up nobody
            stream = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            streams.append(stream)
            stream.sendall(ask)
            if stream.recv(16).startswith(b"HTTP/1.1 503"):
                break
            assert len(streams) < 200, "there is no limit"
        assert len(streams) == 64, len(streams)  # and the tab
        step = f"{card('first')}.textContent.match(/step ([0-9,]+)/)[1]"
        before = tab.js(step)
        tab.wait(f"{step} !== {json.dumps(before)}", "the page goes on beside them")
    finally:
        for stream in streams:
            stream.close()
    wait_for(lambda: server.request("HEAD", "/events")[0] == 200, "their places are free again")


# ---- tests with servers of their own ---------------------------------------------------------------------------------


def test_token(browser, made):
    with tempfile.TemporaryDirectory(prefix="switchyard-page-") as folder:
        server = Server(folder, made, ("first",), arguments=("--page-token", TOKEN))
        try:
            assert server.request("POST", "/api/policy", '{"policy": "rr"}', Content_Type="application/json")[0] == 401
            for wrong in ("", TOKEN + "x", TOKEN[:-1], "x" * len(TOKEN)):
                got = server.request("POST", "/api/policy", "{}", Content_Type="application/json", Authorization=f"Bearer {wrong}")
                assert got[0] == 401 and got[1]["WWW-Authenticate"] == "Bearer", (wrong, got)
            assert server.request("POST", "/api/policy", "{}", Content_Type="application/json", Authorization=f"Bearer {TOKEN}")[0] == 200
            token_by_hand(server, Tab(browser, server.url))
        finally:
            assert server.end() == 0, server.logged()


def token_by_hand(server, tab):
    ready(tab)
    give = "(() => {{ document.getElementById('token').value = {0}; document.querySelector('#ask [type=submit]').click(); }})()"
    tab.click(button(card("first"), "Pause"))
    tab.wait("document.getElementById('ask').open", "it asks for the token")
    tab.click("document.getElementById('ask-cancel')")
    tab.wait("!document.getElementById('ask').open && /no token/.test(document.getElementById('said').textContent)", "nobody gave one")
    tab.click(button(card("first"), "Pause"))
    tab.wait("document.getElementById('ask').open", "it asks again")
    tab.js(give.format(json.dumps("wrong")))
    tab.wait("document.getElementById('ask').open && /does not take/.test(document.getElementById('ask-why').textContent)", "it asks again")
    assert server.job("first")["state"] != "suspended"
    tab.js(give.format(json.dumps(TOKEN)))
    tab.wait(f"{card('first')}.querySelector('.state').textContent === 'suspended'", "the right one acts")
    tab.click(button(card("first"), "Resume"))
    tab.wait(f"{card('first')}.querySelector('.state').textContent !== 'suspended'", "and is kept")
    assert not tab.js("document.getElementById('ask').open")
    errors = [text for text in tab.errors() if "401" not in text]
    assert not errors, errors


def test_comes_back(browser, made):
    with tempfile.TemporaryDirectory(prefix="switchyard-page-") as folder:
        server = Server(folder, made, ("first",))
        tab = Tab(browser, server.url)
        ready(tab)
        assert server.end() == 0, server.logged()
        tab.wait("!document.getElementById('notice').hidden && document.getElementById('live').className === 'off'", "it says that the server is gone")
        server = Server(folder, made, ("second",), port=server.port)
        try:
            tab.wait(f"document.getElementById('notice').hidden && document.getElementById('live').className === 'on' && {card('second')}",
                     "it is live again")
            assert not tab.js(f"Boolean({card('first')})"), "what the other server had is forgotten"
        finally:
            assert server.end() == 0, server.logged()


# ---- running ----------------------------------------------------------------------------------------------------------


def report(name, test):
    print(f"[ RUN      ] {name}", flush=True)
    try:
        test()
    except (Exception, SystemExit):
        traceback.print_exc(file=sys.stdout)
        print(f"[  FAILED  ] {name}", flush=True)
        return False
    print(f"[       OK ] {name}", flush=True)
    return True


def in_a_tab(test, server, browser):
    """With a page that is open; it writes no error to the console, whatever the test does."""
    tab = Tab(browser, server.url)
    try:
        test(server, tab)
        errors = tab.errors()
        assert not errors, errors
    finally:
        tab.call("Page.close")


def main():
    chosen = sys.argv[1:]
    made = packages()
    tests = {name: test for name, test in globals().items() if name.startswith("test_") and (not chosen or name in chosen)}
    alone = {name: tests[name] for name in ("test_token", "test_comes_back") if name in tests}
    bad = 0
    with Browser() as browser, tempfile.TemporaryDirectory(prefix="switchyard-page-") as folder:
        server = Server(folder, {**made, MARKUP: named_markup(folder)}, arguments=("--models", repository(folder)))
        try:
            for name, test in tests.items():
                if name not in alone:
                    bad += not report(name, lambda: in_a_tab(test, server, browser))
            bad += not report("server_ends_well", lambda: check_end(server))
        finally:
            server.end()
        for name, test in alone.items():
            bad += not report(name, lambda: test(browser, made))
    return 1 if bad else 0


def check_end(server):
    assert server.end() == 0, server.logged()


if __name__ == "__main__":
    sys.exit(main())
