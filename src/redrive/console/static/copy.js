// Buttons that copy a text.

export function startCopying() {
  const reveal = () => {
    for (const button of document.querySelectorAll("[data-copy][hidden], [data-copy-above][hidden]")) button.removeAttribute("hidden");
  };
  if (!navigator.clipboard) return;
  reveal();
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-copy], [data-copy-above]") : null;
    if (!(button instanceof HTMLElement)) return;
    const above = "copyAbove" in button.dataset ? button.previousElementSibling?.textContent : button.dataset.copy;
    await navigator.clipboard.writeText(above ?? "");
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
  });
}
