// Buttons that copy a text. They are there where a browser can copy: not over plain HTTP from another machine.

export function startCopying() {
  if (!navigator.clipboard) return;
  document.documentElement.classList.add("can-copy");
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-copy], [data-copy-above], [data-copy-id]") : null;
    if (!(button instanceof HTMLElement)) return;
    await navigator.clipboard.writeText(textOf(button) ?? "");
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
  });
}

/** @param {HTMLElement} button */
function textOf(button) {
  const before = button.previousElementSibling;
  if ("copyAbove" in button.dataset) return before?.textContent;
  return "copyId" in button.dataset ? before?.getAttribute("title") : button.dataset.copy;
}
