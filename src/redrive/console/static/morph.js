// Changes a part of the page into another one, in place: what is the same stays, and so do focus, selection, opened
// details, ticked boxes and scroll positions. Elements with an id or a data-key stay themselves wherever they move to.
// What a script has added (data-own) stays. In a list that is read (data-steady) nothing moves while it is open.

/** Whether lists that are read keep their order. */
let steady = true;

/**
 * @param {Element} region
 * @param {string} html
 * @param {boolean} inOrder lists get the order that they should have, whoever reads them
 */
export function morph(region, html, inOrder = false) {
  const template = document.createElement("template");
  template.innerHTML = html;
  steady = !inOrder;
  children(region, template.content);
}

/**
 * @param {Node} old
 * @param {Node} wanted
 */
function children(old, wanted) {
  const keyed = new Map([...old.childNodes].map((node) => [keyOf(node), node]));
  const kept = new Set([...wanted.childNodes].map(keyOf));
  let there = known(old.firstChild);
  for (const next of [...wanted.childNodes]) {
    while (there && keyOf(there) && !kept.has(keyOf(there))) there = drop(there);
    const key = keyOf(next);
    const found = key ? keyed.get(key) : there;
    if (found && sameKind(found, next) && !reworded(found, next)) {
      keyed.delete(key);
      update(found, next);
      if (found === there) there = known(there.nextSibling);
      else move(old, found, there);
    } else if (there && !key && !keyOf(there)) {
      const after = known(there.nextSibling);
      old.replaceChild(next, there);
      there = after;
    } else old.insertBefore(next, there);
  }
  while (there) there = drop(there);
}

/**
 * What is there stays where it is, what is new comes last, and what is over is marked as such; it goes when nothing
 * stands behind it.
 * @param {Element} old
 * @param {Element} wanted
 */
function keepPlaces(old, wanted) {
  const left = new Map([...wanted.children].map((one) => [keyOf(one), one]));
  for (const one of [...old.children]) {
    const next = left.get(keyOf(one));
    if (next) update(one, next);
    else one.setAttribute("data-over", "");
    left.delete(keyOf(one));
  }
  while (old.lastElementChild?.hasAttribute("data-over")) old.lastElementChild.remove();
  old.append(...left.values());
}

/**
 * The first of these that came from the server.
 * @param {Node | null} node
 */
function known(node) {
  let there = node;
  while (there instanceof Element && there.hasAttribute("data-own")) there = there.nextSibling;
  return there;
}

/** @param {Node} node */
function drop(node) {
  const after = known(node.nextSibling);
  node.parentNode?.removeChild(node);
  return after;
}

/**
 * Moving an element takes the focus from it; it gets it back.
 * @param {Node} parent
 * @param {Node} node
 * @param {Node | null} before
 */
function move(parent, node, before) {
  const focused = document.activeElement;
  parent.insertBefore(node, before);
  if (focused instanceof HTMLElement && node.contains(focused)) focused.focus({ preventScroll: true });
}

/**
 * @param {Node} a
 * @param {Node} b
 */
function sameKind(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

/**
 * Other words are another node: one that is changed would count as moved where it is written from the right.
 * @param {Node} a
 * @param {Node} b
 */
function reworded(a, b) {
  return a.nodeType === Node.TEXT_NODE && a.nodeValue !== b.nodeValue;
}

/** @param {Node} node */
function keyOf(node) {
  return node instanceof Element ? node.id || node.getAttribute("data-key") || "" : "";
}

/**
 * @param {Node} there
 * @param {Node} next
 */
function update(there, next) {
  if (there.nodeType === Node.COMMENT_NODE) {
    if (there.nodeValue !== next.nodeValue) there.nodeValue = next.nodeValue;
    return;
  }
  if (!(there instanceof Element) || !(next instanceof Element)) return;
  attributes(there, next);
  if (there instanceof HTMLInputElement || there instanceof HTMLTextAreaElement || there instanceof HTMLSelectElement) return;
  if (steady && there.hasAttribute("data-steady")) keepPlaces(there, next);
  else children(there, next);
}

/**
 * @param {Element} there
 * @param {Element} next
 */
function attributes(there, next) {
  for (const { name, value } of next.attributes) {
    if (there.getAttribute(name) !== value) there.setAttribute(name, value);
  }
  for (const { name } of [...there.attributes]) {
    // Opened by whoever looks; the server does not know.
    const own = name === "open" && there instanceof HTMLDetailsElement;
    if (!own && !next.hasAttribute(name)) there.removeAttribute(name);
  }
}
