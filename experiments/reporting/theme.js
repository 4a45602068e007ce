// Light, dark, or as the system has it; figures are told when the colours change.

const root = document.documentElement;
const themeListeners = [];
const remembered = {
  get() { try { return localStorage.getItem("theme"); } catch { return null; } },
  set(value) { try { localStorage.setItem("theme", value); } catch { /* not from every file */ } },
};

function setTheme(name) {
  root.dataset.theme = name;
  for (const button of byId("theme").children) {
    button.setAttribute("aria-pressed", button.dataset.name === name);
  }
  themeListeners.forEach(listener => listener());
}

for (const name of ["auto", "light", "dark"]) {
  const press = () => { remembered.set(name); setTheme(name); };
  addButton(byId("theme"), name, press, {"data-name": name});
}
setTheme(["light", "dark"].includes(remembered.get()) ? remembered.get() : "auto");
matchMedia("(prefers-color-scheme: dark)").addEventListener(
  "change", () => themeListeners.forEach(listener => listener()));

// A colour of page.css as the browser resolves it, which figures need.
function colour(name) {
  const probe = add(document.body, "span", {style: `color: var(--${name})`});
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
