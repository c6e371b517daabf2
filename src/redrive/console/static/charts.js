// What stands at one moment of a chart, by hovering, tapping, or the arrow keys. The values are those of its table.
// Charts are drawn again while somebody reads: what is shown belongs to a moment, and stays with it.

const SVG = "http://www.w3.org/2000/svg";

/** What is read: a chart, and a moment of it in seconds since 1970. @type {{chart: Element, moment: number} | null} */
let read = null;

export function startCharts() {
  document.addEventListener("pointermove", point);
  document.addEventListener("click", point);
  document.documentElement.addEventListener("pointerleave", hide);
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", step);
}

/** Shows the values of the same moment again, after charts were drawn anew. */
export function refreshCharts() {
  if (read) show(read.chart, read.moment);
}

/** @param {Event} event */
function point(event) {
  const chart = chartOf(event);
  const parts = chart && partsOf(chart);
  if (!parts) return hide();
  const box = parts.picture.getBoundingClientRect();
  const x = ((/** @type {PointerEvent} */ (event).clientX - box.left) / box.width) * parts.picture.viewBox.baseVal.width;
  const index = Math.floor((x - parts.left) / parts.width);
  if (index >= 0 && index < parts.rows.length) show(chart, parts.first + parts.step * index);
  else hide();
}

/** @param {KeyboardEvent} event */
function step(event) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const chart = by && chartOf(event);
  const parts = chart && partsOf(chart);
  if (!by || !parts) return;
  event.preventDefault();
  const at = read?.chart === chart ? Math.round((read.moment - parts.first) / parts.step) : parts.rows.length;
  show(chart, parts.first + parts.step * Math.min(Math.max(at + by, 0), parts.rows.length - 1));
}

/**
 * The chart whose picture an event happened to.
 * @param {Event} event
 */
function chartOf(event) {
  return event.target instanceof Element ? event.target.closest("[data-chart] svg")?.closest("[data-chart]") : null;
}

/**
 * A chart as it is now; null when there is nothing to read in it.
 * @param {Element} chart
 */
function partsOf(chart) {
  const picture = chart.querySelector("svg");
  const body = chart.querySelector("tbody");
  if (!picture || !body?.rows.length) return null;
  const left = Number(picture.dataset.left);
  const width = (Number(picture.dataset.right) - left) / body.rows.length;
  return { picture, rows: body.rows, left, width, first: Number(body.dataset.first), step: Number(body.dataset.step) };
}

function hide() {
  if (!read) return;
  for (const made of read.chart.querySelectorAll("[data-own]")) made.remove();
  read = null;
}

/**
 * @param {Element} chart
 * @param {number} moment
 */
function show(chart, moment) {
  const parts = partsOf(chart);
  const index = parts ? Math.round((moment - parts.first) / parts.step) : -1;
  const row = parts?.rows[index];
  if (!chart.isConnected || !parts || !row) return hide();
  if (read && read.chart !== chart) hide();
  read = { chart, moment };
  place(parts, index);
  tell(chart, row, index < parts.rows.length / 2 ? "right" : "left");
}

/**
 * @param {NonNullable<ReturnType<typeof partsOf>>} parts
 * @param {number} index
 */
function place({ picture, left, width }, index) {
  let mark = picture.querySelector(".hit");
  if (!mark) {
    mark = document.createElementNS(SVG, "rect");
    mark.setAttribute("class", "hit");
    mark.setAttribute("data-own", "");
    mark.setAttribute("y", "8");
    mark.setAttribute("height", String(picture.viewBox.baseVal.height - 30));
    picture.append(mark);
  }
  mark.setAttribute("x", String(left + width * index));
  mark.setAttribute("width", String(width));
}

/**
 * @param {Element} chart
 * @param {HTMLTableRowElement} row
 * @param {string} side
 */
function tell(chart, row, side) {
  let tip = chart.querySelector(".tip");
  if (!tip) {
    tip = document.createElement("div");
    tip.setAttribute("role", "status");
    tip.setAttribute("data-own", "");
    chart.append(tip);
  }
  tip.className = `tip ${side}`;
  const time = new Date((read?.moment ?? 0) * 1000).toLocaleString();
  const names = [...chart.querySelectorAll("[data-series]")];
  const values = names.map((name, i) => `${name.textContent}: ${row.cells[i + 1]?.textContent ?? ""}`);
  const lines = [time, ...values];
  // Said aloud when it changes, and not whenever the chart was drawn.
  if ([...tip.children].map((line) => line.textContent).join("\n") === lines.join("\n")) return;
  tip.replaceChildren(...lines.map((text, i) => Object.assign(document.createElement(i ? "div" : "strong"), { textContent: text })));
}
