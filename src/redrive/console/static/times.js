// Times as people say them, kept true while the page is open; the exact and the local one on hover.

const UNITS = /** @type {const} */ ([[31536000, "y"], [86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]);
/** How far the server's clock is from this one, in milliseconds. */
let ahead = 0;

export function startTimes() {
  const now = document.body.dataset.now;
  if (now) ahead = Date.parse(now) - Date.now();
  refreshTimes();
  setInterval(() => {
    if (!document.hidden) refreshTimes();
  }, 10000);
}

export function refreshTimes() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    if (!(time instanceof HTMLTimeElement)) continue;
    const moment = Date.parse(time.dateTime);
    if (time.dataset.clock !== undefined) {
      tellHere(time, moment);
      continue;
    }
    const told = relative((Date.now() + ahead - moment) / 1000);
    const text = time.dataset.age === undefined ? told : told.replace(" ago", "");
    if (time.textContent !== text) time.textContent = text;
    tellHere(time, moment);
  }
}

/**
 * @param {HTMLTimeElement} time
 * @param {number} moment
 */
function tellHere(time, moment) {
  if (time.dataset.local) return;
  time.dataset.local = "yes";
  time.title += ` · ${new Date(moment).toLocaleString()} here`;
}

/**
 * As of when the figures of the page are.
 * @param {string} at
 */
export function setAsOf(at) {
  const time = document.querySelector(".as-of time");
  if (!(time instanceof HTMLTimeElement) || Date.parse(at) < Date.parse(time.dateTime)) return;
  const text = new Date(at).toISOString();
  time.dateTime = at;
  time.textContent = `${text.slice(11, 19)} UTC`;
  time.title = `${text.slice(0, 19).replace("T", " ")} UTC`;
  delete time.dataset.local;
  tellHere(time, Date.parse(at));
}

/** @param {number} seconds */
function relative(seconds) {
  const size = Math.abs(seconds);
  if (size < 1.5) return "now";
  for (const [length, unit] of UNITS) {
    if (size >= 2 * length || length === 1) {
      const told = `${Math.round(size / length)} ${unit}`;
      return seconds > 0 ? `${told} ago` : `in ${told}`;
    }
  }
  return "now";
}
