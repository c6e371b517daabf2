// Changes a part of the page into another one, in place: what is the same stays, and so do focus, selection, opened
// details, ticked boxes and scroll positions.

/**
 * @param {Element} region
 * @param {string} html
 */
export function morph(region, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  children(region, template.content);
}

/**
 * @param {Node} old
 * @param {Node} wanted
 */
function children(old, wanted) {
  const olds = [...old.childNodes];
  const news = [...wanted.childNodes];
  for (let i = 0; i < news.length; i++) {
    const there = olds[i];
    const next = news[i];
    if (!there) old.appendChild(next);
    else if (sameKind(there, next)) update(there, next);
    else old.replaceChild(next, there);
  }
  for (const extra of olds.slice(news.length)) old.removeChild(extra);
}

/**
 * @param {Node} a
 * @param {Node} b
 */
function sameKind(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

/** @param {Node} node */
function keyOf(node) {
  return node instanceof Element ? node.id : "";
}

/**
 * @param {Node} there
 * @param {Node} next
 */
function update(there, next) {
  if (there.nodeType === Node.TEXT_NODE || there.nodeType === Node.COMMENT_NODE) {
    if (there.nodeValue !== next.nodeValue) there.nodeValue = next.nodeValue;
    return;
  }
  if (!(there instanceof Element) || !(next instanceof Element)) return;
  attributes(there, next);
  if (there instanceof HTMLInputElement || there instanceof HTMLTextAreaElement || there instanceof HTMLSelectElement) return;
  children(there, next);
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
