// The keyboard: a palette that jumps anywhere, and keys for the pages.

const KEYS = [
  ["/ or Ctrl K", "Jump to a task, trace, scope, kind, queue or page"],
  ["r", "Refresh this page"],
  ["?", "These keys"],
  ["Esc", "Close"],
];

export function startKeys() {
  let going = false;
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openPalette();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (going) {
      going = false;
      const link = pages().find((page) => page.dataset.key === event.key);
      if (link) location.href = link.href;
      return;
    }
    if (event.key === "Escape" && location.hash === "#menu") location.hash = "#content";
    else if (event.key === "/") {
      event.preventDefault();
      openPalette();
    } else if (event.key === "g") {
      going = true;
      setTimeout(() => (going = false), 1500);
    } else if (event.key === "r") location.reload();
    else if (event.key === "?") openKeys();
  });
  const field = document.querySelector(".jump input");
  field?.addEventListener("mousedown", (event) => {
    event.preventDefault();
    openPalette();
  });
}

/** @param {EventTarget | null} target */
function typing(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) && !(target instanceof HTMLInputElement && target.type === "checkbox");
}

/**
 * @param {string} label
 * @param {string} className
 */
function dialog(label, className) {
  document.querySelector(`dialog.${className}`)?.remove();
  const made = document.createElement("dialog");
  made.className = className;
  made.setAttribute("aria-label", label);
  made.addEventListener("close", () => made.remove());
  made.addEventListener("click", (event) => {
    if (event.target === made) made.close();
  });
  document.body.append(made);
  return made;
}

/**
 * The pages of the menu that have a key.
 * @returns {HTMLAnchorElement[]}
 */
function pages() {
  return [...document.querySelectorAll(".menu a[data-key]")].filter((link) => link instanceof HTMLAnchorElement);
}

function openKeys() {
  const made = dialog("Keys", "keys-dialog");
  const list = document.createElement("div");
  list.className = "keys";
  const going = pages().map((page) => [`g then ${page.dataset.key}`, label(page)]);
  for (const [key, what] of [...KEYS, ...going]) {
    const mark = document.createElement("kbd");
    mark.textContent = key;
    const text = document.createElement("span");
    text.textContent = what;
    list.append(mark, text);
  }
  made.append(list);
  made.showModal();
}

/** @typedef {{what: string, name: string, url: string, press?: HTMLElement}} Entry */

function openPalette() {
  const made = dialog("Jump to", "palette");
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Task id, trace, scope, kind, queue, page …";
  field.setAttribute("role", "combobox");
  field.setAttribute("aria-expanded", "true");
  field.setAttribute("aria-controls", "palette-list");
  field.setAttribute("aria-label", "Jump to");
  const list = document.createElement("ul");
  list.id = "palette-list";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "What fits");
  made.append(field, list);
  /** @type {Entry[]} */
  let entries = [];
  let chosen = 0;
  /** @param {Entry} entry */
  const go = (entry) => {
    if (!entry.press) location.href = entry.url;
    else {
      made.close();
      entry.press.click();
    }
  };
  const draw = () => {
    list.replaceChildren(
      ...entries.map((entry, i) => {
        const line = document.createElement("li");
        line.id = `palette-${i}`;
        line.setAttribute("role", "option");
        line.setAttribute("aria-selected", String(i === chosen));
        const name = document.createElement("span");
        name.textContent = entry.name;
        const what = document.createElement("span");
        what.className = "quiet small";
        what.textContent = entry.what;
        line.append(name, what);
        line.addEventListener("click", () => go(entry));
        return line;
      }),
    );
    field.setAttribute("aria-activedescendant", entries.length ? `palette-${chosen}` : "");
    document.getElementById(`palette-${chosen}`)?.scrollIntoView({ block: "nearest" });
  };
  const look = async () => {
    const words = field.value.trim();
    entries = matching(words);
    chosen = 0;
    draw();
    if (words.length < 2) return;
    const found = await suggestions(words);
    if (!found || field.value.trim() !== words) return;
    const search = { what: "search", name: `Search failures for “${words}”`, url: `${document.body.dataset.home}/failures?q=${encodeURIComponent(words)}` };
    entries = [...matching(words), ...found, search];
    draw();
  };
  let waiting = 0;
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = window.setTimeout(look, 120);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      chosen = Math.min(Math.max(chosen + (event.key === "ArrowDown" ? 1 : -1), 0), Math.max(entries.length - 1, 0));
      draw();
    } else if (event.key === "Escape") {
      // A search field would only be emptied by it.
      event.preventDefault();
      made.close();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (entries[chosen]) go(entries[chosen]);
      else if (field.value.trim()) location.href = `${document.body.dataset.home}/find?q=${encodeURIComponent(field.value.trim())}`;
    }
  });
  made.showModal();
  look();
}

/**
 * What the server knows by these words; nothing while it cannot be asked.
 * @param {string} words
 * @returns {Promise<Entry[] | null>}
 */
async function suggestions(words) {
  try {
    const answer = await fetch(`${document.body.dataset.home}/find.json?q=${encodeURIComponent(words)}`, { redirect: "manual" });
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

/**
 * The pages and the actions of this page whose names hold the words.
 * @param {string} words
 * @returns {Entry[]}
 */
function matching(words) {
  const folded = words.toLowerCase();
  const links = [...document.querySelectorAll(".menu a, .heading a.button")];
  const named = links
    .filter((link) => link instanceof HTMLAnchorElement)
    .map((link) => ({ what: link.closest(".menu") ? "page" : "action", name: label(link), url: /** @type {HTMLAnchorElement} */ (link).href }));
  const buttons = [...document.querySelectorAll("[data-theme-switch], form[action$='/sign-out'] button")]
    .filter((button) => button instanceof HTMLElement)
    .map((button) => ({ what: "action", name: button.getAttribute("aria-label") ?? label(button), url: "", press: button }));
  return [...named, ...(folded ? buttons : [])].filter((entry) => entry.name.toLowerCase().includes(folded));
}

/** @param {Element} link */
function label(link) {
  return [...link.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE).map((node) => node.nodeValue?.trim()).join(" ").trim();
}
