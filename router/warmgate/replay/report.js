// Filters the list of divergences. Without script the whole list shows and the box stays hidden.
(() => {
  const box = document.getElementById("filter");
  if (!box) return;
  const rows = [...document.querySelectorAll("#list tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const shown = document.getElementById("filtered");
  box.closest(".filter").hidden = false;
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    rows.forEach((row, index) => {
      row.hidden = !words.every((word) => texts[index].includes(word));
      left += row.hidden ? 0 : 1;
    });
    shown.textContent = words.length ? `${left} of ${rows.length} rows match` : "";
  });
})();
