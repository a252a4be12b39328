// The chat page: one conversation at a time, kept in this browser, answered by the server the page came from.

import { chat, type Model, models, Problem } from "./api";
import { byId, element, iconButton } from "./element";
import { messageView, type MessageView } from "./messages";
import { openSettings } from "./settings";
import * as store from "./store";

const log = byId("log", HTMLElement);
const welcome = byId("welcome", HTMLElement);
const list = byId("conversations", HTMLElement);
const input = byId("input", HTMLTextAreaElement);
const send = byId("send", HTMLButtonElement);
const modelChoice = byId("model", HTMLSelectElement);
const meter = byId("meter", HTMLElement);
const rate = byId("rate", HTMLElement);
const notice = byId("notice", HTMLElement);
const sidebar = byId("sidebar", HTMLElement);

const settings = store.loadSettings();
let available: Model[] = [];
let current = store.newConversation();
let views: MessageView[] = [];
/** The answer that is on its way. */
let running: AbortController | null = null;

// ---- What is shown

function showConversation(): void {
  views = current.messages.map(viewOf);
  views.forEach((view) => view.update(false));
  log.replaceChildren(...views.map((view) => view.node));
  welcome.hidden = views.length > 0;
  document.title = current.title ? `${current.title} · akunu` : "akunu";
  showMeter();
  showList();
  toEnd();
}

function viewOf(message: store.Message): MessageView {
  const from = () => current.messages.indexOf(message);
  return messageView(message, {
    edit(text) {
      if (running) return;
      current.messages.splice(from());
      void ask(text);
    },
    regenerate() {
      if (running) return;
      current.messages.splice(from());
      showConversation();
      void answer();
    },
  });
}

function showList(): void {
  const entries = store.conversations().map((conversation) => {
    const title = conversation.title || "New conversation";
    const open = element("button", { type: "button", className: "open", textContent: title, title });
    open.onclick = () => openConversation(conversation.id);
    if (conversation.id === current.id) open.setAttribute("aria-current", "true");
    const remove = iconButton("trash", `Delete “${title}”`, () => {
      if (!confirm(`Delete “${title}”?`)) return;
      store.remove(conversation.id);
      if (conversation.id === current.id) startNew();
      else showList();
    });
    return element("li", {}, open, remove);
  });
  list.replaceChildren(...entries);
}

/** How much of the context the conversation fills, as of its last answer. */
function showMeter(): void {
  const most = available.find((model) => model.id === settings.model)?.context ?? 0;
  const used = current.messages.findLast((message) => message.timing)?.timing?.context ?? 0;
  meter.hidden = most === 0;
  const share = most ? Math.min(1, used / most) : 0;
  meter.style.setProperty("--share", share.toFixed(3));
  meter.classList.toggle("full", share > 0.9);
  const label = `${used.toLocaleString("en")} of ${most.toLocaleString("en")} tokens of context`;
  meter.title = label;
  byId("meter-text", HTMLElement).textContent = `${used.toLocaleString("en")} / ${most.toLocaleString("en")}`;
}

function showRunning(): void {
  send.classList.toggle("stop", running !== null);
  const label = running ? "Stop (Esc)" : "Send (Enter)";
  send.title = label;
  send.setAttribute("aria-label", label);
  send.disabled = !running && !input.value.trim();
}

function showNotice(text: string): void {
  notice.textContent = text;
  notice.hidden = !text;
}

function showTheme(): void {
  document.documentElement.dataset.theme = settings.theme;
}

/** Whether the end of the conversation is in sight: then it stays so while text arrives. */
function isAtEnd(): boolean {
  return log.parentElement!.scrollHeight - log.parentElement!.scrollTop - log.parentElement!.clientHeight < 80;
}

function toEnd(): void {
  log.parentElement!.scrollTop = log.parentElement!.scrollHeight;
}

/** Ready to type, unless that would bring up a phone's keyboard. */
function focusInput(): void {
  if (matchMedia("(hover: hover)").matches) input.focus();
}

function fitInput(): void {
  input.style.height = "auto";
  input.style.height = `${Math.min(input.scrollHeight, window.innerHeight * 0.4)}px`;
}

// ---- What happens

/** Says something new. */
async function ask(text: string): Promise<void> {
  current.messages.push({ role: "user", content: text });
  current.title ||= text.length > 60 ? `${text.slice(0, 57).trimEnd()}…` : text;
  showConversation();
  await answer();
}

/** Lets the model answer the conversation as it is. */
async function answer(): Promise<void> {
  const conversation = current;
  const message: store.Message = { role: "assistant", content: "" };
  const before = [...conversation.messages];
  conversation.messages.push(message);
  const view = viewOf(message);
  views.push(view);
  log.append(view.node);
  view.update(true);
  toEnd();
  const controller = new AbortController();
  running = controller;
  showRunning();
  showNotice("");

  let pieces = 0;
  let began = 0;
  let painting = 0;
  const paint = () => {
    painting = 0;
    const follow = isAtEnd();
    view.update(true);
    if (follow) toEnd();
    const seconds = (performance.now() - began) / 1000;
    if (pieces > 4) rate.textContent = `${(pieces / seconds).toFixed(1)} tokens/s`;
  };
  const more = () => {
    if (pieces++ === 0) began = performance.now();
    painting ||= requestAnimationFrame(paint);
  };
  try {
    await chat(before, settings, controller.signal, {
      text(piece) {
        message.content += piece;
        more();
      },
      reasoning(piece) {
        message.reasoning = (message.reasoning ?? "") + piece;
        more();
      },
      timing(timing) {
        message.timing = timing;
      },
    });
  } catch (error) {
    if (controller.signal.aborted) message.problem = "Stopped.";
    else if (error instanceof Problem) message.problem = error.message;
    else message.problem = `The page met a problem: ${String(error)}`;
  }
  cancelAnimationFrame(painting);
  rate.textContent = message.timing && message.timing.perSecond > 0 ? `${message.timing.perSecond.toFixed(1)} tokens/s` : "";
  // Another may have begun in another conversation.
  if (running === controller) running = null;
  const follow = isAtEnd();
  view.update(false);
  conversation.updated = Date.now();
  if (!store.save(conversation)) showNotice("The browser's storage is full: this conversation is not kept. Delete others to make room.");
  // A model that was loaded for this answer has a context now.
  if (!available.find((model) => model.id === settings.model)?.context) void loadModels();
  showMeter();
  showList();
  showRunning();
  if (follow) toEnd();
}

function openConversation(id: string): void {
  const found = store.conversation(id);
  if (!found) return showList();
  running?.abort();
  current = found;
  closeSidebar();
  showConversation();
  focusInput();
}

function startNew(): void {
  running?.abort();
  current = store.newConversation();
  rate.textContent = "";
  closeSidebar();
  showConversation();
  focusInput();
}

function submit(): void {
  if (running) return running.abort();
  const text = input.value.trim();
  if (!text) return;
  input.value = "";
  fitInput();
  void ask(text);
}

async function loadModels(): Promise<void> {
  try {
    available = await models(settings);
    showNotice(available.length ? "" : "The server has no model. Start it with one: akunu serve MODEL");
  } catch (error) {
    available = [];
    showNotice(error instanceof Problem ? error.message : String(error));
  }
  if (!available.some((model) => model.id === settings.model)) settings.model = available[0]?.id ?? "";
  modelChoice.replaceChildren(...available.map(({ id }) => element("option", { value: id, textContent: id })));
  modelChoice.value = settings.model;
  byId("welcome-model", HTMLElement).textContent = settings.model;
  showMeter();
}

function openSidebar(): void {
  sidebar.classList.add("shown");
  byId("menu", HTMLElement).setAttribute("aria-expanded", "true");
}

function closeSidebar(): void {
  sidebar.classList.remove("shown");
  byId("menu", HTMLElement).setAttribute("aria-expanded", "false");
}

// ---- What the person does

input.oninput = () => {
  fitInput();
  showRunning();
};
input.onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (!running) submit();
  }
  // An empty field and the arrow up: correct what was said last, as in a shell.
  if (event.key === "ArrowUp" && !input.value && !running) {
    const edits = log.querySelectorAll<HTMLButtonElement>('.user [aria-label="Edit message"]');
    const last = edits[edits.length - 1];
    if (last) {
      event.preventDefault();
      last.click();
    }
  }
};
send.onclick = submit;
byId("new", HTMLButtonElement).onclick = startNew;
byId("new-small", HTMLButtonElement).onclick = startNew;
byId("menu", HTMLButtonElement).onclick = () => (sidebar.classList.contains("shown") ? closeSidebar() : openSidebar());
byId("shade", HTMLElement).onclick = closeSidebar;
for (const example of welcome.querySelectorAll("button")) {
  example.onclick = () => void ask(example.textContent ?? "");
}
modelChoice.onchange = () => {
  settings.model = modelChoice.value;
  store.saveSettings(settings);
  byId("welcome-model", HTMLElement).textContent = settings.model;
  showMeter();
};
document.onkeydown = (event) => {
  if (event.key === "Escape") {
    if (running) running.abort();
    else closeSidebar();
  }
  const command = event.ctrlKey || event.metaKey;
  if (command && event.shiftKey && event.key.toLowerCase() === "o") {
    event.preventDefault();
    startNew();
  }
  if (command && event.key === ",") {
    event.preventDefault();
    byId("open-settings", HTMLButtonElement).click();
  }
};
window.onstorage = showList;

let keyTyped = 0;
let key = settings.key;
openSettings(settings, () => {
  showTheme();
  if (settings.key === key) return;
  key = settings.key;
  // Once the key is complete, models can be listed.
  clearTimeout(keyTyped);
  keyTyped = window.setTimeout(() => void loadModels(), 400);
});
showTheme();
showConversation();
showRunning();
void loadModels();
focusInput();
