/* The fragments of Manage: a press of [data-action] sends what it is about, what is ticked, and what stands beside it. */
const ticks = () => [...element.querySelectorAll("input[data-pick]")];
const count = () => {
  const picked = ticks().filter((box) => box.checked).length;
  for (const place of element.querySelectorAll("[data-picked]")) place.textContent = picked;
  for (const bar of element.querySelectorAll("[data-with-picked]")) bar.disabled = !picked;
};
element.addEventListener("change", (event) => {
  if (event.target.matches("[data-pick-all]")) {
    for (const box of ticks()) box.checked = event.target.checked;
  }
  count();
});
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-action]");
  if (!button || button.disabled) return;
  event.preventDefault();
  if (button.dataset.confirm && !window.confirm(button.dataset.confirm)) return;
  if (button.dataset.action === "copy") {
    navigator.clipboard?.writeText(button.dataset.id).then(() => {
      button.textContent = button.dataset.done;
    });
    return;
  }
  const fields = {};
  for (const field of element.querySelectorAll("[data-field]")) fields[field.dataset.field] = field.value;
  const ids = ticks().filter((box) => box.checked).map((box) => box.value);
  trigger("submit", { action: button.dataset.action, id: button.dataset.id || "", ids, fields });
});
let shown = "";
watch("value", () => {
  const arrived = element.querySelector("[data-arrived]");
  if (arrived && arrived.dataset.arrived !== shown) arrived.scrollIntoView({ behavior: "smooth", block: "start" });
  shown = arrived ? arrived.dataset.arrived : "";
});
