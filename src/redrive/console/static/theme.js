// Switches between dark and light at once; the form behind the button remembers it.

export function startTheme() {
  const button = document.querySelector("[data-theme-switch]");
  if (!(button instanceof HTMLButtonElement) || !button.form) return;
  const form = button.form;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    const wanted = dark ? "light" : "dark";
    root.dataset.theme = wanted;
    const fields = new URLSearchParams(/** @type {any} */ (new FormData(form)));
    fields.set("theme", wanted);
    fetch(form.action, { method: "POST", body: fields, redirect: "manual", keepalive: true }).catch(() => {});
  });
}
