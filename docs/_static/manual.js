// The sidebar shows the current page.
const topOf = (element) => element.getBoundingClientRect().top;
const here = document.querySelector(".sidebar-tree .current-page > a");
const sidebar = here?.closest(".sidebar-scroll");
sidebar?.scrollBy({
  top: topOf(here) - topOf(sidebar) - sidebar.clientHeight / 2,
  behavior: "instant", // The theme's is slow.
});

// On a phone, a table of three columns of text reads as a list, with labels.
for (const table of document.querySelectorAll("article table.docutils:has(thead)")) {
  const heads = [...table.tHead.rows[0].cells];
  const cells = [...table.tBodies[0].rows].flatMap((row) => [...row.cells]);
  for (const cell of cells)
    if (cell.textContent.trim()) cell.dataset.label = heads[cell.cellIndex]?.innerText;
  const hasText = cells.some((cell) => cell.textContent.length > 50);
  if (heads.length > 2 && hasText && !table.matches(".functions, .filter"))
    table.classList.add("list");
}

// An equation within a line of text scrolls if it is wider than the page.
const scrollWideEquations = () => {
  for (const math of document.querySelectorAll("article :is(p, td) > math")) {
    const around = math.closest("td") ?? math.parentElement;
    if (math.getBoundingClientRect().width <= around.clientWidth) continue;
    const box = Object.assign(document.createElement("span"), { className: "wide" });
    math.replaceWith(box);
    box.append(math);
  }
};
scrollWideEquations();
addEventListener("resize", scrollWideEquations);

// Tables of the class "filter" have a box that filters rows, and headers that sort.
const tables = [...document.querySelectorAll("table.filter")];
// A section of its own, or the table.
const part = (table) => table.closest("section section") ?? table.parentElement;
for (const table of tables) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
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

// Search ranks pages by their titles and index entries before their text, shows each
// once, and says what a result is: a function, an algorithm, a page of the guide.
if (typeof Search !== "undefined") {
  const perform = Search._performSearch;
  const order = ["Function", "Algorithm", "Guide", "Class", "Other library", "Example", "Page"];
  const folders = { algorithms: "Algorithm", gallery: "Example", guide: "Guide", from: "Other library" };
  const kindOf = (page) => {
    const [folder, , name] = page.split("/");
    if (page.includes("/kind_")) return "Page";
    if (folder !== "api") return folders[folder] ?? "Page";
    return !name ? "Page" : name[0] > "Z" ? "Function" : "Class";
  };
  // Without case and British spelling.
  const plain = (text) =>
    text.toLowerCase().replace(/our\b|our(?=al|s)/g, "or").replace(/is(?=e|ing|ation)/g, "iz");
  const letters = (text) => plain(text).replace(/[^\p{L}\p{N}]/gu, "");
  const split = (text) => plain(text).split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const spaced = (text) => ` ${split(text).join(" ")} `;
  const stemmer = new Stemmer();
  const stems = (text) =>
    split(text).filter((word) => !stopwords.has(word)).map((word) => stemmer.stemWord(word));
  // "Munchausen-DQN (M-DQN): soft targets" has three names.
  const names = (title) => [title, ...title.split(/: |, | \(|\)|^From /)].filter(Boolean);
  const endings = /[_ ](loss|losses|update|target|targets|returns|weights|error)$/i;
  const last = /^(benchmarks|changelog|contributing|differences|from|names|papers|trust|zoo)\b/;

  // Return what titles and index entries give, by page, the best of each.
  const rank = (query, isCode = query.includes("_")) => {
    const { docnames, titles, alltitles, indexentries } = Search._index;
    const [key, words, parts] = [letters(query), spaced(query), stems(query)];
    // A name is the query, has all of its words, or is a part of it.
    const match = (name) => {
      if (letters(name) === key) return name.toLowerCase() === query.toLowerCase() ? 101 : 100;
      const all = new Set(stems(name));
      const hasAll = parts.length > 1 && parts.every((x) => all.has(x));
      if (hasAll) return 60 + (10 * parts.length) / all.size;
      return name.length > 2 && words.includes(spaced(name)) ? 40 + name.length / 3 : 0;
    };
    const hits = new Map();
    const add = (page, score, title, anchor = "") => {
      const kind = kindOf(page);
      let rated = score - order.indexOf(kind) / 10 - 15 * (kind === "Example");
      if (page.includes("/kind_")) rated -= 10;
      if (page.endsWith(`/${query.toLowerCase()}`)) rated += 0.05;
      // A name of code is that of a function.
      if (score >= 80 && isCode && kind === "Function") rated += 15;
      if (rated > (hits.get(page)?.score ?? 0)) hits.set(page, { score: rated, title, anchor });
    };
    for (const [text, places] of Object.entries(alltitles))
      for (const [file, id] of places) {
        const [page, title] = [docnames[file], titles[file]];
        if (text === title) {
          const score = Math.max(...names(title).map(match));
          if (score >= 60 || kindOf(page) !== "Page") add(page, score && score + 0.4, title);
        } else if (/^(guide|start)/.test(page) && match(text) >= 60)
          add(page, match(text) - 2, `${title}: ${text}`, `#${id}`);
      }
    for (const [entry, places] of Object.entries(indexentries))
      for (const [file, id, isMain] of places) {
        const score = match(entry) - 5 * (match(entry) >= 100);
        const rated = score - 15 * !isMain + /^(guide|algo)/.test(docnames[file]) / 2;
        // Entries within a page lead to their section.
        const inside = /^index-[1-9]/.test(id) ? [`: ${entry}`, `#${id}`] : ["", ""];
        const title = titles[file] + inside[0];
        if (score >= 60 || isMain) add(docnames[file], score && rated, title, inside[1]);
      }
    for (const [file, page] of docnames.entries())
      if (match(`${titles[file]} ${SUMMARIES[page] ?? ""}`) >= 60) add(page, 35, titles[file]);
    return hits;
  };

  Search._performSearch = (query, ...terms) => {
    const { docnames, filenames, titles } = Search._index;
    const hits = rank(query);
    // The main word of `ppo_loss` is PPO; of a name of code, functions come first.
    for (const [page, hit] of rank(query.replace(endings, ""), query.includes("_")))
      if (hit.score - 5 > (hits.get(page)?.score ?? 0))
        hits.set(page, { ...hit, score: hit.score - 5 });
    const addText = (found, least) => {
      for (const [i, [page]] of found.reverse().entries())
        if (!hits.has(page))
          hits.set(page, { score: least - i / 1e3 - 10 * last.test(page), anchor: "" });
    };
    addText(perform(query, ...terms), 20);
    // Or pages with some of the words.
    const words = hits.size < 3 ? split(query) : [];
    for (const word of words) addText(perform(...Search._parseQuery(word)), 0);
    return [...hits]
      .sort((a, b) => a[1].score - b[1].score)
      .map(([page, { score, title, anchor }]) => {
        const file = docnames.indexOf(page);
        const text = `${kindOf(page)} · ${SUMMARIES[page] ?? ""}`;
        return [page, title ?? titles[file], anchor, text, score, filenames[file], "title"];
      });
  };

  // Sphinx shows what describes a hit in parentheses.
  new MutationObserver((changes) => {
    for (const { addedNodes } of changes)
      for (const span of [...addedNodes].flatMap((x) => [...(x.children ?? [])]))
        if (span.matches("ul.search > li > span")) {
          const [kind, text] = span.innerText.trim().slice(1, -1).split(" · ");
          const label = Object.assign(document.createElement("b"), { innerText: kind });
          span.replaceChildren(label, ` ${text}`);
        }
  }).observe(document.getElementById("search-results"), { childList: true, subtree: true });
}
