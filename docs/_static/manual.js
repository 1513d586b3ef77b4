// The sidebar shows the current page.
const topOf = (element) => element.getBoundingClientRect().top;
const here = document.querySelector(".sidebar-tree .current-page > a");
for (const box of [here?.closest("ul"), here?.closest(".sidebar-scroll")])
  box?.scrollBy({
    top: topOf(here) - topOf(box) - box.clientHeight / 2,
    behavior: "instant", // The theme's is slow.
  });

// Tables of the class "filter" have a box that filters rows, and headers that sort.
const tables = [...document.querySelectorAll("table.filter")];
// A section of its own, or the table.
const part = (table) => table.closest("section section") ?? table.parentElement;
for (const table of tables) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  for (const { cells } of body.rows)
    for (const [i, cell] of [...cells].entries())
      if (cell.textContent.trim()) cell.dataset.label = heads[i].innerText;
  heads.forEach((head, i) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.onclick = () => {
      const sign = head.ariaSort === "ascending" ? -1 : 1;
      heads.forEach((each) => (each.ariaSort = "none"));
      head.ariaSort = sign > 0 ? "ascending" : "descending";
      const text = (row) => row.cells[i].textContent;
      const order = (a, b) => text(a).localeCompare(text(b), "en", { numeric: true });
      body.append(...[...body.rows].sort((a, b) => sign * order(a, b)));
    };
  });
}
if (tables.length) {
  const box = document.createElement("input");
  Object.assign(box, { type: "search", className: "filter", placeholder: "Filter" });
  box.ariaLabel = "Filter the rows";
  box.oninput = () => {
    const words = box.value.toLowerCase().split(/\s+/);
    for (const table of tables) {
      const rows = [...table.tBodies[0].rows];
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
      part(table).hidden = rows.every((row) => row.hidden);
    }
  };
  part(tables[0]).before(box);
}

// Search shows a page once, first the function or the guide that a name stands for, and
// last the pages that mention everything. Below a hit is its first sentence.
if (typeof Search !== "undefined") {
  const perform = Search._performSearch;
  const letters = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
  const words = (text) => ` ${text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, " ").trim()} `;
  const endings = /[_ ](loss|losses|update|target|targets|returns|weights|error)$/i;
  const last = /^(benchmarks|changelog|contributing|differences|from|names|papers|trust|zoo)\b/;

  Search._performSearch = (query, ...terms) => {
    const { docnames, titles, indexentries } = Search._index;
    const known = Object.keys(indexentries);
    const find = (text) => known.find((entry) => letters(entry) === letters(text));
    // Or the longest that the query contains: "action mask" of "PPO action mask".
    const contained = known.filter((entry) => words(query).includes(words(entry)));
    const longest = contained.sort((a, b) => b.length - a.length)[0];
    const entry = find(query) ?? find(query.replace(endings, "")) ?? longest ?? query;
    // The best are last. Entries of equal score stay in order, main ones first.
    const hits = perform(entry, ...terms).reverse();
    const score = ([page, , , , score, , kind]) =>
      score + (kind === "index" ? page.startsWith("guide/") : -100 * last.test(page));
    hits.sort((a, b) => score(b) - score(a));
    const pages = new Map();
    for (const [page, , , , score, file, kind] of hits) {
      const title = titles[docnames.indexOf(page)];
      const hit = [page, title, "", SUMMARIES[page] ?? "", score, file, kind];
      if (!pages.has(page)) pages.set(page, hit);
    }
    const found = [...pages.values()];
    // The page of the algorithm of that name is the second, if not the first.
    const at = found.findIndex(
      ([page, title]) =>
        page.startsWith("algorithms/") &&
        letters(title.split(/[:(]/)[0]) === letters(entry)
    );
    if (at > 1) found.splice(1, 0, ...found.splice(at, 1));
    return found.reverse();
  };

  // Sphinx shows what describes a hit in parentheses.
  new MutationObserver((changes) => {
    for (const { addedNodes } of changes)
      for (const span of [...addedNodes].flatMap((x) => [...(x.children ?? [])]))
        if (span.matches("ul.search > li > span"))
          span.innerText = span.innerText.trim().slice(1, -1);
  }).observe(document.getElementById("search-results"), { childList: true, subtree: true });
}
