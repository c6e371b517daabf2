// What stands at one moment of a chart, by hovering, tapping, or the arrow keys. The values are those of its table.

const RIGHT = 8;

export function startCharts() {
  for (const chart of document.querySelectorAll("[data-chart]")) attach(chart);
}

/** @param {Element} chart */
function attach(chart) {
  const picture = chart.querySelector("svg");
  const body = chart.querySelector("tbody");
  if (!picture || !body || !body.rows.length) return;
  const names = [...chart.querySelectorAll("[data-series]")].map((name) => name.textContent ?? "");
  const view = picture.viewBox.baseVal;
  const left = Number(picture.dataset.left);
  const width = (view.width - left - RIGHT) / body.rows.length;
  const mark = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  mark.setAttribute("class", "hit");
  mark.setAttribute("y", "8");
  mark.setAttribute("width", String(width));
  mark.setAttribute("height", String(view.height - 30));
  picture.setAttribute("tabindex", "0");
  let at = -1;
  /** @param {number} index */
  const show = (index) => {
    if (index === at) return;
    at = index;
    chart.querySelector(".tip")?.remove();
    mark.remove();
    const row = body.rows[index];
    if (!row) return;
    mark.setAttribute("x", String(left + width * index));
    picture.append(mark);
    const tip = document.createElement("div");
    tip.className = `tip ${index < body.rows.length / 2 ? "right" : "left"}`;
    tip.setAttribute("role", "status");
    const time = document.createElement("strong");
    const seconds = Number(body.dataset.first) + Number(body.dataset.step) * index;
    time.textContent = new Date(seconds * 1000).toLocaleString();
    tip.append(time);
    names.forEach((name, i) => {
      const line = document.createElement("div");
      line.textContent = `${name}: ${row.cells[i + 1]?.textContent ?? ""}`;
      tip.append(line);
    });
    chart.append(tip);
  };
  /** @param {Event} event */
  const point = (event) => {
    const box = picture.getBoundingClientRect();
    const x = ((/** @type {PointerEvent} */ (event).clientX - box.left) / box.width) * view.width;
    const index = Math.floor((x - left) / width);
    show(index >= 0 && index < body.rows.length ? index : -1);
  };
  picture.addEventListener("pointermove", point);
  picture.addEventListener("click", point);
  picture.addEventListener("pointerleave", () => show(-1));
  picture.addEventListener("blur", () => show(-1));
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(Math.min(Math.max((at < 0 ? body.rows.length : at) + step, 0), body.rows.length - 1));
  });
}
