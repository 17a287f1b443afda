"use strict";
(() => {
  const data = JSON.parse(document.getElementById("index").textContent);
  const chunks = document.querySelectorAll("script.chunk");
  const at = Object.fromEntries(data.columns.map((name, number) => [name, number]));
  const columns = [
    { name: "state", title: "State" },
    { name: "what", title: "Finding" },
    { name: "target", title: "Target" },
    { name: "oracle", title: "Oracle" },
    { name: "known", title: "Known bug" },
    { name: "size", title: "Size", number: true },
    { name: "times", title: "Count", number: true },
  ];
  const STEP = 200;
  const byId = (id) => document.getElementById(id);
  const rows = byId("rows"), head = byId("head"), more = byId("more");
  const form = document.querySelector(".filters");
  const texts = data.rows.map((row) => row.join(" ").toLowerCase());
  const unpacked = new Map(), opened = new Map(); // by the number of a finding: HTML, and its row
  let order = data.rows.map((_, number) => number), matching = order, limit = STEP, sorted = null;

  const say = (text) => { byId("said").textContent = text; };
  const make = (tag, name, text) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // The details of a finding, as HTML that the report wrote.
  async function details(number) {
    const place = Math.floor(number / data.perChunk);
    if (!unpacked.has(place)) {
      const packed = Uint8Array.from(atob(chunks[place].textContent), (sign) => sign.charCodeAt(0));
      const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
      unpacked.set(place, JSON.parse(await new Response(stream).text()));
    }
    return unpacked.get(place)[number % data.perChunk];
  }

  function rowOf(number) {
    const row = data.rows[number], line = make("tr", row[at.open] ? "" : "settled");
    line.dataset.number = number;
    for (const column of columns) {
      const cell = make("td", column.number ? "number" : "");
      const value = row[at[column.name]];
      if (column.name === "state") {
        cell.append(make("span", "state " + value, value));
      } else if (column.name === "what") {
        const button = make("button", "what");
        button.type = "button";
        button.setAttribute("aria-expanded", "false");
        button.append(make("b", "", value), make("small", "", row[at.id]));
        cell.className = "wide";
        cell.append(button);
      } else {
        if (value !== "") cell.dataset.name = column.title.toLowerCase();
        cell.append(document.createTextNode(value));
        if (column.name === "target" && row[at.pass]) cell.append(make("small", "", row[at.pass]));
      }
      line.append(cell);
    }
    return line;
  }

  // Shows a row of details below the row of its finding.
  function expand(line, below) {
    if (!below) return;
    const button = line.querySelector(".what");
    button.setAttribute("aria-expanded", "true");
    button.setAttribute("aria-controls", below.id);
    line.after(below);
  }

  function show() {
    const left = matching.length - limit;
    rows.replaceChildren(...matching.slice(0, limit).map(rowOf));
    for (const line of [...rows.children]) expand(line, opened.get(Number(line.dataset.number)));
    more.hidden = left <= 0;
    more.textContent = `Show ${Math.min(STEP, left)} more of ${matching.length}`;
    const all = data.rows.length, name = all === 1 ? "finding" : "findings";
    byId("shown").textContent = matching.length === all ? `${all} ${name}` : `${matching.length} of ${all} ${name}`;
  }

  function filter() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = ["state", "target", "oracle"].map((name) => [at[name], byId(name).value]);
    const open = byId("open").checked, silent = byId("silent").checked;
    matching = order.filter((number) => {
      const row = data.rows[number];
      return words.every((word) => texts[number].includes(word))
        && wanted.every(([column, value]) => !value || row[column] === value)
        && (!open || row[at.open]) && (!silent || row[at.silent]);
    });
    limit = STEP;
    show();
  }

  function sort(name) {
    const down = sorted && sorted.name === name && !sorted.down;
    sorted = { name, down };
    const column = at[name], words = new Intl.Collator("en", { numeric: true });
    const compare = (a, b) => {
      const one = data.rows[a][column], other = data.rows[b][column];
      return typeof one === "number" ? one - other : words.compare(one, other);
    };
    order = data.rows.map((_, number) => number).sort((a, b) => (down ? -compare(a, b) : compare(a, b)) || a - b);
    for (const cell of head.children) {
      if (cell.dataset.column === name) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
      cell.lastChild.lastChild.textContent = cell.dataset.column === name ? (down ? " ↓" : " ↑") : "";
    }
    filter();
    say(`Sorted by ${name}, ${down ? "descending" : "ascending"}`);
  }

  async function toggle(button) {
    const line = button.closest("tr"), number = Number(line.dataset.number);
    if (opened.has(number)) {
      button.setAttribute("aria-expanded", "false");
      button.removeAttribute("aria-controls");
      opened.get(number).remove();
      opened.delete(number);
      return;
    }
    const below = make("tr", "details"), cell = make("td"), region = make("section");
    cell.colSpan = columns.length;
    below.id = `details-${number}`;
    region.setAttribute("aria-label", `Details of ${data.rows[number][at.id]}`);
    cell.append(region);
    below.append(cell);
    opened.set(number, below);
    expand(line, below);
    region.innerHTML = await details(number);
    history.replaceState(null, "", "#" + encodeURIComponent(data.rows[number][at.id]));
  }

  async function copy(button) {
    const text = byId(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // An older way, for pages that may not use the clipboard.
      const area = make("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      button.focus();
    }
    const before = button.textContent;
    button.textContent = "Copied";
    say(`${button.getAttribute("aria-label").replace("Copy", "Copied")}`);
    setTimeout(() => { button.textContent = before; }, 1500);
  }

  // Opens the finding that the address names.
  async function openNamed() {
    const name = decodeURIComponent(location.hash.slice(1));
    const number = data.rows.findIndex((row) => row[at.id] === name);
    if (number < 0) return;
    if (matching.indexOf(number) >= limit) { limit = matching.indexOf(number) + 1; show(); }
    const button = rows.querySelector(`tr[data-number="${number}"] .what`);
    if (!button) return;
    if (button.getAttribute("aria-expanded") !== "true") await toggle(button);
    button.scrollIntoView({ block: "start" });
    button.focus({ preventScroll: true });
  }

  for (const column of columns) {
    const cell = make("th", column.number ? "number" : ""), button = make("button", "", column.title);
    cell.scope = "col";
    cell.dataset.column = column.name;
    button.type = "button";
    button.append(make("span", "", ""));
    button.addEventListener("click", () => sort(column.name));
    cell.append(button);
    head.append(cell);
  }
  for (const name of ["state", "target", "oracle"]) {
    const counts = new Map();
    for (const row of data.rows) counts.set(row[at[name]], (counts.get(row[at[name]]) || 0) + 1);
    for (const [value, count] of [...counts].sort()) {
      const option = make("option", "", `${value} (${count})`);
      option.value = value;
      byId(name).append(option);
    }
  }
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter));
  more.addEventListener("click", () => { limit += STEP; show(); });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.classList.contains("what")) toggle(button);
    else if (button.dataset.copy) copy(button);
  });
  document.addEventListener("keydown", (event) => {
    const here = document.activeElement, typing = /^(INPUT|SELECT|TEXTAREA)$/.test(here.tagName);
    if (event.key === "/" && !typing) {
      event.preventDefault();
      byId("search").focus();
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && here.classList.contains("what")) {
      const all = [...rows.querySelectorAll(".what")];
      const next = all[all.indexOf(here) + (event.key === "ArrowDown" ? 1 : -1)];
      if (next) { event.preventDefault(); next.focus(); }
    } else if (event.key === "Escape" && here.closest(".details")) {
      const button = here.closest(".details").previousElementSibling.querySelector(".what");
      toggle(button);
      button.focus();
    }
  });
  window.addEventListener("hashchange", openNamed);
  filter();
  if (location.hash) openNamed();
  else if (data.rows.length === 1) toggle(rows.querySelector(".what"));
})();
