// A form's command for the shell: what is filled in becomes its options, so that both do the same.

const WHY = " --reason WHY";

/** @param {string} text */
function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

/** @param {HTMLInputElement | HTMLSelectElement} field */
function optionOf(field) {
  if (field instanceof HTMLSelectElement) return field.selectedOptions[0]?.dataset.option ?? "";
  const name = field.name === "reason" ? "--reason" : field.dataset.option;
  if (!name) return "";
  if (field.type === "checkbox") return field.checked ? name : "";
  const value = field.value.trim();
  return value ? `${name} ${quoted(value)}` : "";
}

/** @param {HTMLFormElement} form */
function follow(form) {
  const commands = [...document.querySelectorAll(`#${form.dataset.shell} .command`)].map((shown) => ({
    code: shown.querySelector("code"),
    copy: shown.querySelector("button"),
    begins: (shown.querySelector("code")?.textContent ?? "").replace(WHY, ""),
  }));
  const button = /** @type {HTMLElement | null} */ (form.querySelector("[data-of-canary]"));
  const whole = button?.textContent ?? "";
  const tell = () => {
    const fields = /** @type {(HTMLInputElement | HTMLSelectElement)[]} */ ([...form.querySelectorAll("input, select")]);
    const options = fields.map(optionOf).filter(Boolean).map((option) => ` ${option}`);
    const why = options.some((option) => option.startsWith(" --reason ")) ? "" : WHY;
    for (const { code, copy, begins } of commands) {
      const text = begins + options.join("") + why;
      if (code) code.textContent = text;
      if (copy) copy.dataset.copy = text;
    }
    const first = fields.find((field) => field.name === "canary")?.value.trim();
    if (button) button.textContent = first ? (button.dataset.ofCanary ?? "").replace("{n}", first) : whole;
  };
  form.addEventListener("input", tell);
  addEventListener("pageshow", tell); // a browser fills forms in again when somebody comes back
  tell();
}

export function startShell() {
  for (const form of document.querySelectorAll("form[data-shell]")) follow(/** @type {HTMLFormElement} */ (form));
}
