// News for the open page: one stream of events, closed while nobody looks at the tab.
import { morph } from "./morph.js";
import { refreshTimes } from "./times.js";

const HIDDEN_FOR_MS = 5000;
/** @type {EventSource | null} */
let stream = null;
/** @type {number | undefined} */
let closing;
let over = false;
/** @type {[number, number] | null} */
let first = null;

export function startLive() {
  if (!document.body.dataset.live) return;
  open();
  document.addEventListener("visibilitychange", () => {
    clearTimeout(closing);
    if (document.hidden) closing = window.setTimeout(close, HIDDEN_FOR_MS);
    else if (!stream && !over) open();
  });
  window.addEventListener("pagehide", close);
}

function open() {
  const topics = document.body.dataset.live ?? "";
  stream = new EventSource(`${document.body.dataset.home}/live?topics=${encodeURIComponent(topics).replaceAll("%2C", ",")}`);
  stream.onopen = () => say("on", "live");
  stream.onerror = () => say("lost", stream?.readyState === EventSource.CLOSED ? "not live" : "reconnecting");
  stream.onmessage = (event) => take(JSON.parse(event.data));
  stream.addEventListener("over", () => {
    over = true;
    close();
    say("lost", "signed out");
  });
}

function close() {
  stream?.close();
  stream = null;
  say("off", "not live");
}

/** @param {{regions: Record<string, string>, trouble: string | null}} news */
function take(news) {
  if (news.trouble) say("lost", "store unreachable");
  else say("on", "live");
  for (const [name, text] of Object.entries(news.regions)) {
    if (name.startsWith("#")) show(name.slice(1), text);
    else if (name.startsWith("badge:")) badge(name.slice(6), text);
    else if (name === "failures") count(text);
  }
  refreshTimes();
}

/**
 * @param {string} id
 * @param {string} html
 */
function show(id, html) {
  const region = document.getElementById(id);
  // While a word in it is selected, or a field in it is typed into, it stays as it is.
  if (region && !selecting(region)) morph(region, html);
}

/** @param {Element} region */
function selecting(region) {
  const selection = document.getSelection();
  return Boolean(selection && !selection.isCollapsed && selection.anchorNode && region.contains(selection.anchorNode));
}

/**
 * @param {string} name
 * @param {string} text
 */
function badge(name, text) {
  for (const mark of document.querySelectorAll(`[data-badge="${CSS.escape(name)}"]`)) {
    mark.textContent = text;
    mark.classList.toggle("hot", name === "failed" && text !== "");
  }
}

/** @param {string} text the place of the latest failure, and how many there are */
function count(text) {
  const [newest, total] = text.split("/").map(Number);
  const notice = document.getElementById("news");
  if (!notice) return;
  first ??= [newest, total];
  const seen = Number(notice.dataset.newest) || first[0];
  if (newest <= seen && total === first[1]) return;
  const more = total - first[1];
  const said = notice.querySelector("[data-news]");
  if (said) said.textContent = more > 0 ? `${more.toLocaleString("en")} new` : "This list has changed";
  notice.hidden = false;
}

/**
 * @param {string} state
 * @param {string} text
 */
function say(state, text) {
  const label = document.querySelector(".live");
  if (!(label instanceof HTMLElement)) return;
  if (label.dataset.state !== state) label.dataset.state = state;
  if (label.textContent !== text) label.textContent = text;
}
