// Buttons that copy a text.

export function startCopying() {
  const reveal = () => {
    for (const button of document.querySelectorAll("[data-copy][hidden]")) button.removeAttribute("hidden");
  };
  if (!navigator.clipboard) return;
  reveal();
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-copy]") : null;
    if (!(button instanceof HTMLElement)) return;
    await navigator.clipboard.writeText(button.dataset.copy ?? "");
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
  });
}
