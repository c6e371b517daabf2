// News for the open page: one stream of events, closed while nobody looks at the tab.
import { refreshCharts } from "./charts.js";
import { morph } from "./morph.js";
import { refreshTimes, setAsOf } from "./times.js";

const HIDDEN_FOR_MS = 5000;
const AGAIN_MS = 3000;
const MOST_NEW = 20;
/** @type {EventSource | null} */
let stream = null;
/** @type {number | undefined} */
let closing;
/** @type {number | undefined} */
let again;
let over = false;
/** Too many pages of the same person were opened after this one. */
let crowded = false;
/** How many failures there were when the page was opened. @type {string | null} */
let total0 = null;
/** The first row of the page. @type {string | null} */
let newest = null;
/** What the page was when it was opened. @type {string | null} */
let state = null;
/** Regions whose news waits until nothing in them is selected. @type {Map<string, string>} */
const waiting = new Map();
/** The latest text of regions that keep their height. @type {Map<string, string>} */
const latest = new Map();
/** Regions whose lists get their order again with the next news: nobody has looked for a while. @type {Set<string>} */
const unsorted = new Set();

export function startLive() {
  if (!document.body.dataset.live) return;
  open();
  document.addEventListener("visibilitychange", () => {
    clearTimeout(closing);
    if (document.hidden) closing = window.setTimeout(() => close("paused"), HIDDEN_FOR_MS);
    else if (!stream && !over) {
      crowded = false;
      for (const list of document.querySelectorAll("[data-steady]")) unsorted.add(list.closest("[id]")?.id ?? "");
      open();
    }
  });
  for (const region of document.querySelectorAll("[data-fixed]")) if (region instanceof HTMLElement) offer(region);
  document.addEventListener("selectionchange", catchUp);
  document.addEventListener("click", unfold);
  window.addEventListener("resize", fit);
  window.addEventListener("pagehide", () => close("paused"));
  window.addEventListener("focus", lookedAt);
  document.addEventListener("pointerdown", lookedAt);
  window.addEventListener("pageshow", (event) => {
    if (event.persisted && !stream && !over) open();
  });
}

function open() {
  clearTimeout(again);
  const topics = document.body.dataset.live ?? "";
  const opened = new EventSource(`${document.body.dataset.home}/live?topics=${encodeURIComponent(topics).replaceAll("%2C", ",")}`);
  stream = opened;
  opened.onopen = () => say("on", "live");
  opened.onerror = () => {
    say("lost", "reconnecting");
    // A browser tries again by itself when the wire broke, and gives up when the answer was no stream.
    if (opened.readyState === EventSource.CLOSED && stream === opened) {
      stream = null;
      again = window.setTimeout(lookAgain, AGAIN_MS);
    }
  };
  opened.onmessage = (event) => take(JSON.parse(event.data));
  opened.addEventListener("beat", (event) => asOf(JSON.parse(event.data).at));
  opened.addEventListener("over", end);
  opened.addEventListener("crowded", () => {
    crowded = true;
    close("too many pages", "lost");
  });
}

/** Somebody is here again: this page is heard of, and the one that was opened first of the others makes room. */
function lookedAt() {
  if (!crowded || stream || over) return;
  crowded = false;
  open();
}

/** The stream was refused: either nobody is signed in any more, or something is away for a while. */
async function lookAgain() {
  if (stream || over || document.hidden) return;
  try {
    const answer = await fetch(`${document.body.dataset.home}/find.json`, { redirect: "manual" });
    if (answer.type === "opaqueredirect") end();
    else if (answer.ok) open();
    else again = window.setTimeout(lookAgain, AGAIN_MS);
  } catch {
    again = window.setTimeout(lookAgain, AGAIN_MS);
  }
}

function end() {
  over = true;
  close("signed out", "lost");
  const link = document.createElement("a");
  link.href = `${document.body.dataset.home}/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`;
  link.textContent = "signed out";
  document.querySelector(".live")?.replaceChildren(link);
  const strip = document.querySelector(".lost");
  const again = /** @type {HTMLAnchorElement} */ (link.cloneNode());
  again.textContent = "Sign in again";
  strip?.append(" ", again);
}

/**
 * @param {string} why
 * @param {string} state
 */
function close(why, state = "off") {
  clearTimeout(again);
  stream?.close();
  stream = null;
  say(state, why);
}

/**
 * What is pushed is as of now; other pages are as of when they were made.
 * @param {string | null} at
 */
function asOf(at) {
  if (at && document.body.dataset.pushed !== undefined) setAsOf(at);
}

/** @param {{regions: Record<string, string>, trouble: {label: string, text: string} | null, at: string | null}} news */
function take(news) {
  asOf(news.at);
  if (news.trouble) say("lost", news.trouble.label, news.trouble.text);
  else say("on", "live");
  for (const [name, text] of Object.entries(news.regions)) {
    if (name.startsWith("#")) show(name.slice(1), text);
    else if (name.startsWith("badge:")) badge(name.slice(6), text);
    else if (name === "failures") count(text);
    else if (name === "listed") listed(text.split(","));
    else if (name === "changed") changed(text);
  }
  refreshTimes();
  refreshCharts();
}

/**
 * @param {string} id
 * @param {string} html
 */
function show(id, html) {
  const region = document.getElementById(id);
  if (!region) return;
  // While words of it are selected it stays as it is: somebody copies them.
  if (selecting(region)) waiting.set(id, html);
  else {
    waiting.delete(id);
    if (region.hasAttribute("data-fixed")) hold(region, html);
    morph(region, html, unsorted.delete(id));
    offer(region);
  }
}

/**
 * Keeps the height of a region, so that nothing below it moves: what no longer fits is scrolled to, or unfolded.
 * @param {HTMLElement} region
 * @param {string} html
 */
function hold(region, html) {
  latest.set(region.id, html);
  region.style.height ||= `${region.offsetHeight}px`;
}

/** @param {HTMLElement} region */
function offer(region) {
  const button = document.querySelector(`[data-unfold="${CSS.escape(region.id)}"]`);
  button?.toggleAttribute("data-needed", region.scrollHeight > region.clientHeight);
}

/** @param {Event} event */
function unfold(event) {
  const button = event.target instanceof Element ? event.target.closest("[data-unfold]") : null;
  const region = document.getElementById(button?.getAttribute("data-unfold") ?? "");
  if (!region) return;
  region.setAttribute("data-unfolded", "");
  region.style.height = "";
  morph(region, latest.get(region.id) ?? region.innerHTML, true);
  offer(region);
  region.querySelector("a, button")?.focus({ preventScroll: true });
}

/** In another window lines are of another height. */
function fit() {
  for (const region of document.querySelectorAll("[data-fixed]")) {
    if (region instanceof HTMLElement) region.style.height = "";
  }
}

function catchUp() {
  for (const [id, html] of waiting) show(id, html);
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
    if (mark.textContent !== text) mark.textContent = text;
    mark.classList.toggle("hot", name === "failed" && text !== "");
  }
}

/** @param {string} text the places of the latest failures, and how many there are */
function count(text) {
  const [places, total] = text.split("/");
  total0 ??= total;
  if (listed(places.split(",")) || total === total0) return;
  const notice = document.getElementById("news");
  if (notice) tell(notice, "This list has changed");
}

/**
 * Tells how many rows come before the first one of the page; returns whether there are any.
 * @param {string[]} ids of the rows that come first now
 */
function listed(ids) {
  const notice = document.getElementById("news");
  const known = ids.filter(Boolean);
  newest ??= notice?.dataset.newest || (notice?.dataset.empty === undefined ? (known[0] ?? "") : "");
  const fresh = known.filter((id) => isAbove(id, newest ?? "")).length;
  if (notice && fresh) tell(notice, fresh > MOST_NEW ? `${MOST_NEW}+ new` : `${fresh} new`);
  return fresh > 0;
}

/**
 * Whether a number, or an id that begins with its time, is the later one.
 * @param {string} a
 * @param {string} b
 */
function isAbove(a, b) {
  return a.length === b.length ? a > b : a.length > b.length;
}

/** @param {string} text stands for the state of the page, whatever that is */
function changed(text) {
  state ??= text;
  const notice = document.getElementById("news");
  if (notice && text !== state) tell(notice, "This page has changed");
}

/**
 * @param {HTMLElement} notice
 * @param {string} text
 */
function tell(notice, text) {
  const said = notice.querySelector("[data-news]");
  if (said) said.textContent = text;
  notice.hidden = false;
}

/**
 * @param {string} state
 * @param {string} text
 * @param {string} why where the server knows it
 */
function say(state, text, why = "") {
  const label = document.querySelector(".live");
  if (!(label instanceof HTMLElement)) return;
  if (label.dataset.state !== state) label.dataset.state = state;
  if (label.textContent !== text) label.textContent = text;
  warn(state === "lost" ? text : "", why);
}

/** Why nothing is heard, by the label that says so. @type {Record<string, string>} */
const WHY = {
  reconnecting: "The server does not answer; it is tried again.",
  "store unreachable": "The server cannot reach its database; it is tried again.",
  "signed out": "You are signed out.",
  "too many pages": "Many of your pages are open; this one goes on when you click into it.",
};

/**
 * @param {string} label what is said while nothing is heard; nothing while all is well
 * @param {string} why
 */
function warn(label, why) {
  const strip = document.querySelector(".lost");
  if (!(strip instanceof HTMLElement)) return;
  const at = document.querySelector(".as-of time")?.textContent;
  const text = label && `${WHY[label] ?? (why || label)} What you see is as of ${at}.`;
  if (strip.dataset.told === text) return;
  strip.dataset.told = text;
  strip.textContent = text;
  strip.hidden = !text;
}
