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
    const told = relative((Date.now() + ahead - moment) / 1000);
    const text = time.dataset.age === undefined ? told : told.replace(" ago", "");
    if (time.textContent !== text) time.textContent = text;
    if (!time.dataset.local) {
      time.dataset.local = "yes";
      time.title += ` · ${new Date(moment).toLocaleString()} here`;
    }
  }
}

/** @param {number} seconds */
function relative(seconds) {
  const size = Math.abs(seconds);
  if (size < 1.5) return "now";
  for (const [length, unit] of UNITS) {
    if (size >= length) {
      const told = `${Math.floor(size / length)} ${unit}`;
      return seconds > 0 ? `${told} ago` : `in ${told}`;
    }
  }
  return "now";
}
