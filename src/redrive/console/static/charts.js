// What stands at one moment of a chart, by hovering, tapping, or the arrow keys.

export function startCharts() {
  for (const chart of document.querySelectorAll("[data-chart]")) attach(chart);
}

/** @param {Element} chart */
function attach(chart) {
  const columns = [...chart.querySelectorAll(".hit")];
  const names = [...chart.querySelectorAll("[data-series]")].map((name) => name.textContent ?? "");
  const picture = chart.querySelector("svg");
  if (!picture || !columns.length) return;
  picture.setAttribute("tabindex", "0");
  let at = -1;
  /** @param {number} index */
  const show = (index) => {
    chart.querySelector(".tip")?.remove();
    columns[at]?.classList.remove("on");
    at = index;
    const column = columns[index];
    if (!(column instanceof SVGElement)) return;
    column.classList.add("on");
    const tip = document.createElement("div");
    tip.className = `tip ${index < columns.length / 2 ? "right" : "left"}`;
    tip.setAttribute("role", "status");
    const time = document.createElement("strong");
    time.textContent = new Date(column.dataset.at ?? "").toLocaleString();
    tip.append(time);
    (column.dataset.values ?? "").split("|").forEach((value, i) => {
      const line = document.createElement("div");
      line.textContent = `${names[i]}: ${value}`;
      tip.append(line);
    });
    chart.append(tip);
  };
  columns.forEach((column, i) => {
    column.addEventListener("pointerenter", () => show(i));
    column.addEventListener("click", () => show(i));
  });
  picture.addEventListener("pointerleave", () => show(-1));
  picture.addEventListener("blur", () => show(-1));
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[/** @type {KeyboardEvent} */ (event).key];
    if (step) {
      event.preventDefault();
      show(Math.min(Math.max((at < 0 ? columns.length - 1 : at) + step, 0), columns.length - 1));
    }
  });
}
