// The panel with the system prompt and the sampling.

import { byId } from "./element";
import { NUMBERS, type Settings, saveSettings } from "./store";

/** Connects the panel to the settings; `changed` is called whenever something changed. */
export function openSettings(settings: Settings, changed: () => void): void {
  const panel = byId("settings", HTMLDialogElement);
  const system = byId("system", HTMLTextAreaElement);
  const key = byId("key", HTMLInputElement);
  const thinking = byId("thinking", HTMLSelectElement);
  const theme = byId("theme", HTMLSelectElement);
  const numbers = NUMBERS.map((name) => ({ name, input: byId(name, HTMLInputElement) }));

  const fill = () => {
    system.value = settings.system;
    key.value = settings.key;
    thinking.value = settings.thinking;
    theme.value = settings.theme;
    for (const { name, input } of numbers) input.value = settings.numbers[name]?.toString() ?? "";
  };
  panel.oninput = () => {
    settings.system = system.value;
    settings.key = key.value.trim();
    settings.thinking = thinking.value as Settings["thinking"];
    settings.theme = theme.value as Settings["theme"];
    for (const { name, input } of numbers) {
      if (input.value === "" || !input.validity.valid) delete settings.numbers[name];
      else settings.numbers[name] = input.valueAsNumber;
    }
    saveSettings(settings);
    changed();
  };
  byId("reset", HTMLButtonElement).onclick = () => {
    settings.numbers = {};
    settings.thinking = "";
    saveSettings(settings);
    fill();
    changed();
  };
  byId("close-settings", HTMLButtonElement).onclick = () => panel.close();
  // A click beside the panel closes it.
  panel.onclick = (event) => {
    if (event.target === panel) panel.close();
  };
  byId("open-settings", HTMLButtonElement).onclick = () => {
    fill();
    panel.showModal();
  };
}
