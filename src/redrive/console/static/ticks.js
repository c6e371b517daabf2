// Ticking rows: the whole page with one box, and how many are ticked.

export function startTicks() {
  const table = document.querySelector("[data-ticks]");
  if (!table) return;
  const boxes = () => /** @type {HTMLInputElement[]} */ ([...table.querySelectorAll('input[name="id"]')]);
  const all = /** @type {HTMLInputElement | null} */ (table.querySelector("[data-tick-all]"));
  const tell = () => {
    const ticked = boxes().filter((box) => box.checked).length;
    if (all) {
      all.checked = ticked > 0 && ticked === boxes().length;
      all.indeterminate = ticked > 0 && ticked < boxes().length;
    }
    const label = document.querySelector("[data-ticked]");
    if (label) label.textContent = ticked ? `${ticked} ticked` : "";
    for (const button of document.querySelectorAll("[data-needs-ticks]")) button.toggleAttribute("disabled", ticked === 0);
  };
  table.addEventListener("change", (event) => {
    if (event.target === all) for (const box of boxes()) box.checked = Boolean(all?.checked);
    tell();
  });
  // From a box, Enter leads to what is done with the ticked rows, past all the others; it would send the form otherwise.
  table.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.target instanceof HTMLInputElement) || event.target.type !== "checkbox") return;
    event.preventDefault();
    const button = /** @type {HTMLButtonElement | null} */ (table.closest("form")?.querySelector("[data-needs-ticks]"));
    const field = /** @type {HTMLInputElement | null | undefined} */ (button?.parentElement?.querySelector('input[name="reason"]'));
    (field ?? button)?.focus();
  });
  tell();
  // Whoever comes back finds the ticks that the browser has kept.
  window.addEventListener("pageshow", tell);
}
