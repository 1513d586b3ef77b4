"""Test the manual that `make docs` built in a browser, where Chromium is installed.

No page is wider than its window, equations need no network, and a search for a name, an
acronym or a concept leads to its page first, and says what each result is.
"""

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

# Algorithms that people ask for by name, and their pages.
NAMES = {
    **{"CrossQ": "crossq", "DroQ": "droq", "RLPD": "rlpd", "BRO": "bro"},
    **{"FastTD3": "fast_td3", "FastSAC": "fast_sac", "SimBaV2": "categorical_sac"},
    **{"XQC": "xqc", "REPPO": "reppo", "MR.Q": "mrq", "DrQ-v2": "drqv2"},
    **{"MASAC": "masac", "MADDPG": "maddpg", "IPPO": "ippo", "MAPPO": "mappo"},
    **{"BBF": "bbf", "SR-SPR": "sr_spr", "M-IQN": "munchausen_iqn"},
    **{"DQN-Reg": "dqn_reg", "branching DQN": "branching_dqn"},
    **{"recurrent PPO": "recurrent_ppo", "masked PPO": "masked_ppo"},
    **{"RND": "rnd", "RND with PPO": "rnd_ppo", "AlphaZero": "alphazero"},
    **{"MuZero": "muzero", "sampled MuZero": "sampled_muzero_policy"},
    **{"SPO": "spo", "QC": "qc", "QC-FQL": "qc_fql"},
    **{"Diffusion-QL": "diffusion_ql", "GCBC": "gcbc", "GCIQL": "gciql"},
    **{"BEAR": "bear", "BCQ": "bcq", "Flow-GRPO": "flow_grpo"},
    **{"DiffusionNFT": "diffusion_nft", "PLR": "plr", "ACCEL": "accel", "SFL": "sfl"},
}

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
  for (const math of root.querySelectorAll("article math")) {
    const scrolls = math.closest(".equations, .table-wrapper, .wide");
    if (!scrolls && math.getBoundingClientRect().right > width)
      problems.push(`${page} at ${width}: ${math.textContent.trim().slice(0, 60)}`);
  }
  const here = root.querySelector(".sidebar-tree .current-page > a");
  const place = here?.getBoundingClientRect().top ?? 0;
  if (width > 1000 && (place < 0 || place > 900))
    problems.push(`${page}: the sidebar shows ${place}`);
  const tables = "table.functions, table.names, table.list";
  const boxes = width > 1000 ? ".table-wrapper, .highlight pre, math" : tables;
  for (const box of root.querySelectorAll(`article :is(${boxes})`)) {
    const most = box.matches("table") ? box.parentElement.clientWidth : box.clientWidth;
    if (box.scrollWidth > most + 1)
      problems.push(`${page} at ${width}: ${box.textContent.trim().slice(0, 60)}`);
  }
  for (const row of width > 1000 ? [] : root.querySelectorAll("table.filter tbody tr"))
    if (row.offsetHeight > 45)
      problems.push(`${page} at ${width}: two lines, ${row.textContent.slice(0, 60)}`);
}

(async () => {
  for (const page of PAGES) {
    frame.style.width = "1400px";
    await load(page);
    await measure(page, 1400);
    await measure(page, 400);
    const { scripts } = frame.contentDocument;
    for (const { loading, src } of frame.contentDocument.images)
      if (src.includes("/_images/") && loading !== "lazy")
        problems.push(`${page} loads ${src} at once`);
    for (const script of scripts)
      if (script.src && new URL(script.src).origin !== location.origin)
        problems.push(`${page} loads ${script.src}`);
  }
  await load("search.html");
  for (const query of QUERIES) {
    const text = JSON.stringify(query);
    const search = `Search._performSearch(...Search._parseQuery(${text}))`;
    const hits = frame.contentWindow.eval(search).reverse();
    found[query] = hits.map((hit) => [hit[0], hit[3].split(" · ")[0]]);
  }
  await fetch("result", { method: "POST", body: JSON.stringify({ problems, found }) });
})();
</script>
"""


class Server(http.server.ThreadingHTTPServer):
    """Serves the manual and a program, and receives its result."""

    def __init__(self, program):
        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=BUILD))
        self.program, self.result, self.done = program, None, threading.Event()


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/check":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.server.program.encode())
        return None

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        self.server.result = json.loads(self.rfile.read(length))
        self.send_response(204)
        self.end_headers()
        self.server.done.set()

    def log_message(self, *_):
        pass


def browse(folder, pages=(), queries=()):
    """Return the problems of pages, and what the search finds for each query."""
    if BROWSER is None or "search.html" not in PAGES:
        pytest.skip("There is no browser, or no manual: see make docs.")
    program = PROGRAM.replace("PAGES", json.dumps([*pages]))
    options = ["--headless=new", "--no-sandbox", "--disable-gpu"]
    # No host but this one exists.
    options += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    options += [f"--user-data-dir={folder}", "--window-size=1500,1000"]
    with Server(program.replace("QUERIES", json.dumps([*queries]))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [BROWSER, *options, f"http://127.0.0.1:{server.server_port}/check"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as browser:
            server.done.wait(900)
            browser.terminate()
        server.shutdown()
    return server.result


def test_nothing_is_wider_than_its_page_and_no_script_comes_from_elsewhere(tmp_path):
    assert browse(tmp_path, pages=PAGES)["problems"] == []


def first_pages(found):
    return {query: hits[0][0] if hits else "" for query, hits in found.items()}


def test_a_search_shows_the_right_page_first_and_each_page_once(tmp_path):
    assert len(QUERIES) >= 200
    found = browse(tmp_path, queries=QUERIES)["found"]
    first = first_pages(found)
    pairs = ((x, f"/{first[x]}", f"/{page}") for x, page in QUERIES.items())
    wrong = {x: page for x, page, wanted in pairs if not page.endswith(wanted)}
    assert wrong == {}
    for hits in found.values():
        pages = [page for page, _ in hits]
        assert len(pages) == len(set(pages))


def test_a_search_for_a_title_shows_its_page_first_and_kinds(tmp_path):
    assert len(NAMES) >= 40
    found = browse(tmp_path, queries=[*NAMES, "PopArt"])["found"]
    first = first_pages(found)
    assert {x: first[x] for x in NAMES} == {x: f"algorithms/{NAMES[x]}" for x in NAMES}
    both = {page for page, _ in found["SPO"][:2]}
    assert both == {"algorithms/spo", "algorithms/smc_policy_optimization"}
    kinds = dict(found["PopArt"])
    assert kinds["api/normalization/popart"] == "Function"
    assert kinds["api/normalization/PopArt"] == "Class"
    assert kinds["guide/popart"] == "Guide"
    assert kinds["gallery/pop_art"] == "Example"
    assert dict(found["BBF"])["algorithms/bbf"] == "Algorithm"
