// A click on a column header sorts by it, a second click reverses the order; rows without a value stay last.
for (const head of document.querySelectorAll("#files th")) {
  head.firstChild.addEventListener("click", () => {
    const at = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = document.querySelector("#files tbody");
    const value = (row) => row.cells[at].dataset.v;
    const rows = [...body.rows].sort((a, b) => {
      const x = value(a), y = value(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      return down ? y - x : x - y;
    });
    body.append(...rows);
  });
}
