
"use strict";
(() => {
  const table = document.querySelector("table.files");
  const controls = document.querySelector(".controls");
  if (!table || !controls) return;
  const body = table.tBodies[0];
  const all = [...body.rows];
  const files = all.filter(row => row.dataset.place !== undefined);
  const heads = all.filter(row => row.classList.contains("folder-row"));
  const blocks = [...document.querySelectorAll(".map .block[data-folder]")];
  const search = controls.querySelector("input[type=search]");
  const boxes = [...controls.querySelectorAll("input[type=checkbox]")];
  const shown = controls.querySelector("output");
  const texts = new Map(files.map(row => [row, row.textContent.toLowerCase()]));
  const grouped = table.classList.contains("grouped");
  let sorted = false;

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hidden = new Set(boxes.filter(box => !box.checked).map(box => box.value));
    const folders = new Set();
    let count = 0;
    for (const row of files) {
      const text = texts.get(row);
      const fits = !hidden.has(row.dataset.action) && words.every(word => text.includes(word));
      row.classList.toggle("filtered", !fits);
      if (fits) {
        count += 1;
        folders.add(row.dataset.folder);
      }
    }
    for (const head of heads) head.classList.toggle("filtered", sorted || !folders.has(head.dataset.folder));
    for (const block of blocks) {
      const folder = block.dataset.folder.toLowerCase();
      const fits = folders.has(block.dataset.folder) || words.every(word => folder.includes(word));
      block.classList.toggle("filtered", words.length > 0 && !fits);
      for (const bar of block.querySelectorAll("rect[class^=a-]"))
        bar.classList.toggle("filtered", hidden.has(bar.classList[0].slice(2)));
    }
    const filtered = count < files.length;
    shown.textContent = filtered ? `${count.toLocaleString("en")} of ${files.length.toLocaleString("en")} listed` : "";
  }

  function value(row, key) {
    if (key === "file") return row.cells[0].querySelector(".path").textContent;
    const text = row.dataset[key === "action" ? "order" : key];
    return text === "" ? Infinity : Number(text);
  }

  function sort(head) {
    const key = head.dataset.sort;
    const before = head.getAttribute("aria-sort");
    const first = ["file", "action", "low"].includes(key) ? "ascending" : "descending";
    const second = first === "ascending" ? "descending" : "ascending";
    const next = before === first ? second : before === second ? null : first;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    sorted = next !== null;
    table.classList.toggle("grouped", grouped && !sorted);
    if (!sorted) {
      body.append(...all);
    } else {
      head.setAttribute("aria-sort", next);
      const sign = next === "ascending" ? 1 : -1;
      const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
      const keyed = files.map(row => [value(row, key), Number(row.dataset.place), row]);
      keyed.sort((a, b) => sign * compare(a[0], b[0]) || a[1] - b[1]);
      body.append(...keyed.map(([, , row]) => row));
    }
    filter();
  }

  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(head));
  }
  search.addEventListener("input", filter);
  for (const box of boxes) box.addEventListener("change", filter);
  table.classList.add("sortable");
  controls.hidden = false;
  filter();
})();
