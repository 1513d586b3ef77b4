// The search box of the page of names: show the rows that have all words of a query.
const box = document.getElementById("names-search");
if (box) {
  // As people write them: C-51 is C51, q_learning is qlearning, gae is GAE.
  const plain = (text) => text.toLowerCase().replace(/[-_.()\s]/g, "");
  const rows = [...document.querySelectorAll("table.names tbody tr")].map((row) => ({
    row,
    name: plain(row.cells[0].textContent),
    text: plain(row.textContent),
  }));
  const body = document.querySelector("table.names tbody");
  const show = () => {
    const words = box.value.split(/\s+/).map(plain).filter(Boolean);
    const whole = plain(box.value);
    // What is so named stands before what starts so, and that before the rest.
    const rank = ({ name }) =>
      name === whole ? 0 : name.startsWith(whole) ? 1 : name.includes(whole) ? 2 : 3;
    for (const each of [...rows].sort((a, b) => rank(a) - rank(b))) {
      each.row.hidden = !words.every((word) => each.text.includes(word));
      body.append(each.row);
    }
    const query = box.value ? "?q=" + encodeURIComponent(box.value) : "";
    try {
      history.replaceState(null, "", location.pathname + query + location.hash);
    } catch {} // A page opened as a file may not.
  };
  box.value = new URLSearchParams(location.search).get("q") ?? "";
  box.addEventListener("input", show);
  if (box.value) show();
}
