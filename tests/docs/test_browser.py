"""Test the manual that `make docs` built in a browser, where Chromium is installed.

No page is wider than its window, equations need no network, and a search for a name or
an acronym leads to its function first.
"""

import contextlib
import functools
import http.server
import json
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[2] / "docs/_build"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
PAGES = sorted(
    path.relative_to(BUILD).as_posix()
    for path in BUILD.rglob("*.html")
    if path.relative_to(BUILD).parts[0] != "_modules"
)
QUERIES = dict(
    line.split(": ")
    for line in (Path(__file__).parent / "queries.txt").read_text("utf-8").splitlines()
)

# Loads each page in a frame, measures it at both widths, and asks the search.
PROGRAM = """
<iframe id="frame" style="height: 900px; border: 0"></iframe>
<script>
const frame = document.getElementById("frame"), problems = [], found = {};
const load = (url) => new Promise((done) => { frame.onload = done; frame.src = url; });
const drawn = () => new Promise((done) => requestAnimationFrame(() => done()));

async function measure(page, width) {
  frame.style.width = `${width}px`;
  await drawn();
  const root = frame.contentDocument.documentElement;
  if (root.scrollWidth > width) problems.push(`${page} at ${width}: the page`);
  const tables = "table.functions, table.names";
  const boxes = width > 1000 ? ".table-wrapper, .highlight pre, math" : tables;
  for (const box of root.querySelectorAll(`article :is(${boxes})`)) {
    const most = box.matches("table") ? box.parentElement.clientWidth : box.clientWidth;
    if (box.scrollWidth > most + 1)
      problems.push(`${page} at ${width}: ${box.textContent.trim().slice(0, 60)}`);
  }
}

(async () => {
  for (const page of PAGES) {
    await load(page);
    await measure(page, 1400);
    await measure(page, 400);
    const { scripts } = frame.contentDocument;
    for (const script of scripts)
      if (script.src && new URL(script.src).origin !== location.origin)
        problems.push(`${page} loads ${script.src}`);
  }
  await load("search.html");
  for (const query of QUERIES) {
    const text = JSON.stringify(query);
    const search = `Search._performSearch(...Search._parseQuery(${text}))`;
    found[query] = frame.contentWindow.eval(search).reverse().map((hit) => hit[0]);
  }
  await fetch("result", { method: "POST", body: JSON.stringify({ problems, found }) });
})();
</script>
"""


class Server(http.server.ThreadingHTTPServer):
    """Serves the manual and the program, and receives its result."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=BUILD))
        self.result, self.done = {}, threading.Event()


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/check":
            return super().do_GET()
        program = PROGRAM.replace("PAGES", json.dumps(PAGES))
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(program.replace("QUERIES", json.dumps([*QUERIES])).encode())
        return None

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        self.server.result = json.loads(self.rfile.read(length))
        self.send_response(204)
        self.end_headers()
        self.server.done.set()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    if BROWSER is None or "search.html" not in PAGES:
        pytest.skip("There is no browser, or no manual: see make docs.")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu"]
    options += [f"--user-data-dir={tmp_path_factory.mktemp('browser')}"]
    # No host but this one exists.
    options += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/check"
        command = [BROWSER, *options, "--window-size=1500,1000", url]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as browser:
            finished = server.done.wait(900)
            browser.terminate()
        with contextlib.suppress(OSError):
            server.shutdown()
    assert finished
    return server.result


def test_nothing_is_wider_than_its_page_and_no_script_comes_from_elsewhere(result):
    assert result["problems"] == []


def test_a_search_shows_the_right_page_first_and_each_page_once(result):
    assert len(QUERIES) >= 100
    first = {query: pages[:1] for query, pages in result["found"].items()}
    names = {query: "".join(pages).rpartition("/")[2] for query, pages in first.items()}
    assert names == QUERIES
    for pages in result["found"].values():
        assert len(pages) == len(set(pages))
