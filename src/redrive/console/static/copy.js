// Buttons that copy a text. They are there where a browser can copy: not over plain HTTP from another machine.

export function startCopying() {
  if (!navigator.clipboard) return;
  document.documentElement.classList.add("can-copy");
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-copy], [data-copy-above]") : null;
    if (!(button instanceof HTMLElement)) return;
    const above = "copyAbove" in button.dataset ? button.previousElementSibling?.textContent : button.dataset.copy;
    await navigator.clipboard.writeText(above ?? "");
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
  });
}
