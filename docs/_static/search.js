// Search shows a page once, and first the function that a name or acronym stands for.
if (typeof Search !== "undefined") {
  const perform = Search._performSearch;
  const letters = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
  const endings = /[_ ](loss|losses|update|target|targets|returns|weights|error)$/i;

  Search._performSearch = (query, ...terms) => {
    const { docnames, titles, indexentries } = Search._index;
    const find = (text) =>
      Object.keys(indexentries).find((entry) => letters(entry) === letters(text));
    const entry = find(query) ?? find(query.replace(endings, "")) ?? query;
    // The best are last. Entries of equal score stay in order, main ones first.
    const hits = perform(entry, ...terms).reverse();
    hits.sort((a, b) => b[4] - a[4]);
    const pages = new Map();
    for (const [page, , , , score, file, kind] of hits) {
      const title = titles[docnames.indexOf(page)];
      if (!pages.has(page)) pages.set(page, [page, title, "", null, score, file, kind]);
    }
    return [...pages.values()].reverse();
  };

  // The text below a hit begins with the sentence after the signature.
  const toText = Search.htmlToText;
  Search.htmlToText = (html, anchor) =>
    toText(html.replace(/<dt class="sig[^]*?<\/dt>/g, ""), anchor);
}
