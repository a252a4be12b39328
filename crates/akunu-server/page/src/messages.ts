// One message on the page.

import { copyButton, element, iconButton } from "./element";
import { show } from "./markdown";
import type { Message } from "./store";

export interface Actions {
  edit(text: string): void;
  regenerate(): void;
}

/** A message on the page, and a way to show it anew when there is more of it. */
export interface MessageView {
  node: HTMLElement;
  update(streaming: boolean): void;
}

export function messageView(message: Message, actions: Actions): MessageView {
  return message.role === "user" ? userView(message, actions) : answerView(message, actions);
}

function userView(message: Message, actions: Actions): MessageView {
  const text = element("div", { className: "bubble", textContent: message.content });
  const tools = element(
    "div",
    { className: "tools" },
    copyButton("Copy message", () => message.content),
    iconButton("edit", "Edit message", () => node.replaceChildren(editor())),
  );
  const node = element("article", { className: "message user" }, text, tools);
  node.setAttribute("aria-label", "You");

  const editor = () => {
    const area = element("textarea", { value: message.content, rows: Math.min(12, message.content.split("\n").length + 1) });
    area.setAttribute("aria-label", "Edit message");
    const cancel = () => node.replaceChildren(text, tools);
    const send = () => {
      if (area.value.trim()) actions.edit(area.value.trim());
    };
    area.onkeydown = (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
      }
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      }
    };
    const buttons = element(
      "div",
      { className: "row" },
      element("button", { type: "button", className: "button", textContent: "Cancel", onclick: cancel }),
      element("button", { type: "button", className: "button primary", textContent: "Send", onclick: send }),
    );
    setTimeout(() => area.focus());
    return element("div", { className: "editor" }, area, buttons);
  };
  return { node, update: () => {} };
}

function answerView(message: Message, actions: Actions): MessageView {
  const thoughts = element("div", { className: "markdown" });
  const summary = element("summary");
  const thinking = element("details", { className: "thinking", hidden: true }, summary, thoughts);
  const text = element("div", { className: "markdown" });
  const problem = element("p", { className: "problem", hidden: true });
  problem.setAttribute("role", "alert");
  const timing = element("span", { className: "timing" });
  const copy = copyButton("Copy answer", () => message.content);
  const tools = element(
    "div",
    { className: "tools" },
    copy,
    iconButton("again", "Regenerate", () => actions.regenerate()),
    timing,
  );
  const node = element("article", { className: "message answer" }, thinking, text, problem, tools);
  node.setAttribute("aria-label", "Answer");

  const update = (streaming: boolean) => {
    node.classList.toggle("streaming", streaming);
    node.classList.toggle("waiting", streaming && !message.content && !message.reasoning);
    node.setAttribute("aria-busy", String(streaming));
    thinking.hidden = !message.reasoning;
    summary.textContent = streaming && !message.content ? "Thinking…" : "Thoughts";
    show(thoughts, message.reasoning ?? "");
    show(text, message.content);
    problem.hidden = !message.problem;
    problem.textContent = message.problem ?? "";
    tools.hidden = streaming;
    copy.hidden = !message.content;
    if (message.timing) {
      const { tokens, perSecond, firstTokenMs } = message.timing;
      const first = firstTokenMs < 1000 ? `${Math.round(firstTokenMs)} ms` : `${(firstTokenMs / 1000).toFixed(1)} s`;
      const rate = perSecond > 0 ? ` · ${perSecond.toFixed(1)} tokens/s` : "";
      timing.textContent = `${tokens} tokens${rate} · first after ${first}`;
    }
  };
  return { node, update };
}
