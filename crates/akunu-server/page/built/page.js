// src/api.ts
var Problem = class extends Error {
};
var UNREACHABLE = "The server cannot be reached. Is it still running?";
async function call(path, settings2, init = {}) {
  const headers = { "content-type": "application/json" };
  if (settings2.key) headers.authorization = `Bearer ${settings2.key}`;
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), { ...init, headers });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Problem(UNREACHABLE);
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const message2 = body?.error?.message;
  if (response.status === 401) throw new Problem("The server wants an API key. Enter it in the settings.");
  throw new Problem(typeof message2 === "string" ? message2 : `The server answered with status ${response.status}.`);
}
async function models(settings2) {
  const response = await call("v1/models", settings2);
  const body = await response.json();
  const writers = body.data.filter(({ tasks }) => tasks?.includes("write") ?? true);
  return writers.map(({ id, context_length }) => ({ id, context: context_length }));
}
async function chat(messages, settings2, signal, listener) {
  const said = messages.filter((message2) => message2.content).map(({ role, content }) => ({ role, content }));
  const system = settings2.system.trim() ? [{ role: "system", content: settings2.system }] : [];
  const body = {
    model: settings2.model,
    messages: [...system, ...said],
    stream: true,
    stream_options: { include_usage: true },
    ...settings2.numbers,
    ...settings2.thinking && { chat_template_kwargs: { enable_thinking: settings2.thinking === "on" } }
  };
  const response = await call("v1/chat/completions", settings2, { method: "POST", body: JSON.stringify(body), signal });
  for await (const data of events(response, signal)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Problem(chunk.error.message);
    const delta = chunk.choices?.[0]?.delta;
    if (delta?.reasoning_content) listener.reasoning(delta.reasoning_content);
    if (delta?.content) listener.text(delta.content);
    if (chunk.usage) {
      listener.timing({
        tokens: chunk.usage.completion_tokens,
        perSecond: chunk.timings?.decode_per_second ?? 0,
        firstTokenMs: chunk.timings?.first_token_ms ?? 0,
        context: chunk.usage.prompt_tokens + chunk.usage.completion_tokens
      });
    }
  }
  throw new Problem("The connection was lost before the answer was complete.");
}
async function* events(response, signal) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (; ; ) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (signal.aborted) throw error;
      return;
    }
    if (part.done) return;
    rest += decoder.decode(part.value, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ")) yield line.slice(6);
    }
  }
}

// src/element.ts
function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((child) => child instanceof Node || typeof child === "string"));
  return made;
}
function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${kind.name} #${id}`);
  return found;
}
function iconButton(icon, label, onclick) {
  const button = element("button", { type: "button", className: "icon-button", title: label, onclick }, drawing(icon));
  button.setAttribute("aria-label", label);
  return button;
}
var ICONS = {
  copy: "M9 9h11v11H9z M15 9V4H4v11h5",
  done: "M4 12l6 6L20 6",
  edit: "M4 20h4L19 9l-4-4L4 16z M13 7l4 4",
  again: "M20 11A8 8 0 1 0 18 17 M20 5v6h-6",
  trash: "M4 7h16 M9 7V4h6v3 M6 7l1 13h10l1-13"
};
var SVG = "http://www.w3.org/2000/svg";
function drawing(icon) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[icon]);
  svg.append(path);
  return svg;
}
async function copy(text2) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text2);
  const area = element("textarea", { value: text2, className: "offscreen" });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
function copyButton(label, text2) {
  const button = iconButton("copy", label, () => {
    void copy(text2()).then(() => {
      button.replaceChildren(drawing("done"));
      setTimeout(() => button.replaceChildren(drawing("copy")), 1500);
    });
  });
  return button;
}

// src/highlight.ts
var C_COMMENTS = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`;
var HASH_COMMENTS = String.raw`#[^\n]*`;
var QUOTED = String.raw`"(?:[^"\\\n]|\\[\s\S])*"?|'(?:[^'\\\n]|\\[\s\S])*'?`;
var BACKQUOTED = "`(?:[^`\\\\]|\\\\[\\s\\S])*`?";
var LANGUAGES = [
  {
    names: ["rust", "rs"],
    comments: C_COMMENTS,
    // A quote alone begins a lifetime.
    strings: String.raw`b?"(?:[^"\\]|\\[\s\S])*"?|'(?:[^'\\\n]|\\.)'`,
    keywords: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while"
  },
  {
    names: ["javascript", "js", "jsx", "typescript", "ts", "tsx"],
    comments: C_COMMENTS,
    strings: `${QUOTED}|${BACKQUOTED}`,
    keywords: "abstract as async await break case catch class const continue default delete do else enum export extends false finally for from function if implements import in instanceof interface let new null of private public readonly return static super switch this throw true try type typeof undefined var void while yield"
  },
  {
    names: ["python", "py"],
    comments: HASH_COMMENTS,
    strings: String.raw`[fbru]{0,2}"""[\s\S]*?(?:"""|$)|[fbru]{0,2}'''[\s\S]*?(?:'''|$)|${QUOTED}`,
    keywords: "and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield"
  },
  {
    names: ["c", "h", "cpp", "c++", "cc", "hpp", "java", "cs", "csharp", "go", "kotlin", "kt", "swift", "php", "dart", "scala", "zig"],
    comments: C_COMMENTS,
    strings: `${QUOTED}|${BACKQUOTED}`,
    keywords: "abstract auto bool break byte case catch chan char class const continue data def default defer delete do double echo else enum explicit export extends extern false final finally float fn for foreach fun func function go goto guard if implements import in include inline int interface internal let long map mutable namespace new nil null nullptr object operator override package private protected protocol public range return short signed sizeof static string struct super switch template this throw throws true try type typedef typename union unsigned using val var virtual void volatile when where while"
  },
  {
    names: ["bash", "sh", "shell", "zsh", "console", "dockerfile", "makefile"],
    comments: String.raw`(?<![^\s])#[^\n]*`,
    strings: QUOTED,
    keywords: "alias apt case cat cd cp curl do docker done echo elif else esac exit export fi for from function git grep if in install let local ls mkdir mv npm pip read return rm run sed set source sudo then unset until wget while"
  },
  {
    names: ["sql", "sqlite", "postgresql", "mysql"],
    comments: String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`,
    strings: QUOTED,
    keywords: "ADD ALL ALTER AND AS ASC BETWEEN BY CASE CREATE DEFAULT DELETE DESC DISTINCT DROP ELSE END EXISTS FOREIGN FROM GROUP HAVING IN INDEX INNER INSERT INTO IS JOIN KEY LEFT LIKE LIMIT NOT NULL ON OR ORDER OUTER PRIMARY REFERENCES RIGHT SELECT SET TABLE THEN UNION UNIQUE UPDATE VALUES VIEW WHEN WHERE WITH"
  },
  { names: ["json", "json5", "jsonc"], comments: C_COMMENTS, strings: QUOTED, keywords: "true false null" },
  { names: ["toml", "ini", "yaml", "yml"], comments: HASH_COMMENTS, strings: QUOTED, keywords: "true false null yes no on off" },
  { names: ["html", "xml", "svg"], comments: String.raw`<!--[\s\S]*?(?:-->|$)`, strings: QUOTED, keywords: "" },
  { names: ["css", "scss", "less"], comments: C_COMMENTS, strings: QUOTED, keywords: "important media import supports keyframes root" },
  {
    names: ["ruby", "rb", "perl", "r", "julia", "elixir"],
    comments: HASH_COMMENTS,
    strings: QUOTED,
    keywords: "and begin case class def defmodule defp do else elsif end ensure false for function if in module my next nil not or return self sub then true unless until use when while yield"
  },
  {
    names: ["lua", "haskell", "hs"],
    comments: String.raw`--[^\n]*`,
    strings: QUOTED,
    keywords: "and break case class data deriving do else elseif end false for function if import in instance let local module newtype nil not of or repeat return then true type until where while"
  }
];
var MOST = 3e4;
var KINDS = ["comment", "string", "number", "word"];
function patternOf(language) {
  const number2 = String.raw`\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*`;
  const sources2 = [language.comments, language.strings, number2, String.raw`[A-Za-z_]\w*[!?]?(?=(\s*\()?)`];
  return new RegExp(sources2.map((source) => `(${source})`).join("|"), "g");
}
function highlight(text2, name) {
  const language = LANGUAGES.find((language2) => language2.names.includes(name.toLowerCase()));
  if (!language || text2.length > MOST) return [document.createTextNode(text2)];
  const keywords = new Set(language.keywords.split(" "));
  const anyCase = name.toLowerCase().includes("sql");
  const nodes = [];
  let end = 0;
  for (const match of text2.matchAll(patternOf(language))) {
    const kind = KINDS.find((_, i) => match[i + 1] !== void 0);
    const word = match[0];
    let shown = kind;
    if (kind === "word") {
      const known = keywords.has(anyCase ? word.toUpperCase() : word);
      shown = known ? "keyword" : match[5] !== void 0 ? "called" : void 0;
    }
    if (!shown || !word) continue;
    if (match.index > end) nodes.push(document.createTextNode(text2.slice(end, match.index)));
    const span = document.createElement("span");
    span.className = `hl-${shown}`;
    span.textContent = word;
    nodes.push(span);
    end = match.index + word.length;
  }
  nodes.push(document.createTextNode(text2.slice(end)));
  return nodes;
}

// src/markdown.ts
var DEEPEST = 12;
var FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
var HEADING = /^ {0,3}(#{1,6})\s+(.*?)(?:\s+#+)?\s*$/;
var RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
var ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)(.*)$/;
var QUOTE = /^ {0,3}> ?(.*)$/;
var TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
function parse(lines, depth = 0) {
  const blocks = [];
  let paragraph = [];
  const close = () => {
    if (paragraph.length) blocks.push({ kind: "paragraph", text: paragraph.join("\n") });
    paragraph = [];
  };
  for (let i = 0; i < lines.length; ) {
    const line = lines[i];
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (!line.trim()) {
      close();
      i++;
    } else if (fence) {
      close();
      const [, indent = "", marks = "", language = ""] = fence;
      let end = i + 1;
      while (end < lines.length && !isClosing(lines[end], marks)) end++;
      const text2 = lines.slice(i + 1, end).map((line2) => unindent(line2, indent.length));
      blocks.push({ kind: "code", language, text: text2.join("\n") });
      i = end + 1;
    } else if (heading) {
      close();
      blocks.push({ kind: "heading", level: heading[1].length, text: heading[2] });
      i++;
    } else if (RULE.test(line)) {
      close();
      blocks.push({ kind: "rule" });
      i++;
    } else if (depth < DEEPEST && QUOTE.test(line)) {
      close();
      const inner = [];
      for (let match; i < lines.length && (match = QUOTE.exec(lines[i])); i++) inner.push(match[1]);
      blocks.push({ kind: "quote", blocks: parse(inner, depth + 1) });
    } else if (depth < DEEPEST && ITEM.test(line)) {
      close();
      const list2 = parseList(lines, i, depth);
      blocks.push(list2.block);
      i = list2.end;
    } else if (line.includes("|") && TABLE_RULE.test(lines[i + 1] ?? "") && !paragraph.length) {
      const align = cells(lines[i + 1]).map(
        (cell) => cell.endsWith(":") ? cell.startsWith(":") ? "center" : "right" : "left"
      );
      const rows = [cells(line)];
      for (i += 2; i < lines.length && lines[i].includes("|"); i++) rows.push(cells(lines[i]));
      blocks.push({ kind: "table", align, rows });
    } else {
      paragraph.push(line.trimStart());
      i++;
    }
  }
  close();
  return blocks;
}
function isClosing(line, marks) {
  const text2 = line.trim();
  return text2.length >= marks.length && text2 === marks[0].repeat(text2.length);
}
function unindent(line, most) {
  let spaces = 0;
  while (spaces < most && line[spaces] === " ") spaces++;
  return line.slice(spaces);
}
function parseList(lines, begin, depth) {
  const [, indent = "", mark = ""] = ITEM.exec(lines[begin]);
  const ordered = /\d/.test(mark);
  const items = [];
  let i = begin;
  for (; i < lines.length; i++) {
    const line = lines[i].replace(/^\t+/, (tabs) => "    ".repeat(tabs.length));
    const item = ITEM.exec(line);
    const inner = line.length - line.trimStart().length > indent.length + 1;
    const belongs = item && item[1].length <= indent.length + 1 && /\d/.test(item[2]) === ordered && !RULE.test(line);
    if (belongs && item[1].length < indent.length) break;
    if (belongs) {
      items.push([item[4]]);
    } else if (!line.trim()) {
      const next = lines.slice(i + 1).find((line2) => line2.trim());
      const more = next !== void 0 && (next.search(/\S/) > indent.length + 1 || ITEM.exec(next)?.[1]?.length === indent.length);
      if (!more) break;
      items.at(-1).push("");
    } else if (inner || !item && !FENCE.test(line) && !HEADING.test(line) && lines[i - 1].trim()) {
      const width = indent.length + mark.length + 1;
      items.at(-1).push(unindent(line, width));
    } else {
      break;
    }
  }
  const start = ordered ? parseInt(mark, 10) : 1;
  return { block: { kind: "list", ordered, start, items: items.map((item) => parse(item, depth + 1)) }, end: i };
}
function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}
var CODE = /(`+)([\s\S]*?[^`])\1(?!`)/y;
var LINK = /!?\[((?:[^[\]\\]|\\.)*)\]\(\s*([^\s()]+(?:\([^\s()]*\))?)(?:\s+"[^"]*")?\s*\)/y;
var ADDRESS = /https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]]/y;
var EMPHASIS = /(\*\*\*|\*\*|\*|~~|__|_)(?=\S)/y;
var SPECIAL = /[\\`*_~[!h]/g;
function at(pattern, text2, index) {
  pattern.lastIndex = index;
  return pattern.exec(text2);
}
function inline(text2, depth = 0) {
  const nodes = [];
  let plain = "";
  const push = (node) => {
    if (plain) nodes.push(document.createTextNode(plain));
    plain = "";
    nodes.push(node);
  };
  for (let i = 0; i < text2.length; ) {
    SPECIAL.lastIndex = i;
    const next = SPECIAL.exec(text2)?.index ?? text2.length;
    plain += text2.slice(i, next);
    i = next;
    const code = at(CODE, text2, i);
    const link = at(LINK, text2, i);
    const address = at(ADDRESS, text2, i);
    const mark = at(EMPHASIS, text2, i)?.[1];
    if (text2[i] === "\\" && /[!-/:-@[-`{-~]/.test(text2[i + 1] ?? "")) {
      plain += text2[i + 1];
      i += 2;
    } else if (code) {
      push(element("code", { textContent: code[2].replaceAll("\n", " ") }));
      i += code[0].length;
    } else if (link && depth < DEEPEST) {
      push(anchor(link[2], inline(link[1], depth + 1)));
      i += link[0].length;
    } else if (address) {
      push(anchor(address[0], [document.createTextNode(address[0])]));
      i += address[0].length;
    } else {
      const end = mark && depth < DEEPEST ? closing(text2, i, mark) : -1;
      if (mark && end > 0) {
        push(emphasised(mark, inline(text2.slice(i + mark.length, end), depth + 1)));
        i = end + mark.length;
      } else {
        plain += text2.slice(i, i + (mark?.length ?? 1));
        i += mark?.length ?? 1;
      }
    }
  }
  if (plain) nodes.push(document.createTextNode(plain));
  return nodes;
}
function closing(text2, begin, mark) {
  const isWord = (char) => char !== void 0 && /\w/.test(char);
  if (mark[0] === "_" && isWord(text2[begin - 1])) return -1;
  for (let end = begin + mark.length; (end = text2.indexOf(mark, end + 1)) >= 0; ) {
    const inside = text2[end - 1];
    const after = text2[end + mark.length];
    const longer = mark.length === 1 && (after === mark || inside === mark);
    if (/\S/.test(inside) && !longer && !(mark[0] === "_" && isWord(after))) return end;
  }
  return -1;
}
function emphasised(mark, children) {
  if (mark === "***") return element("strong", {}, element("em", {}, ...children));
  return element(mark === "~~" ? "del" : mark.length === 2 ? "strong" : "em", {}, ...children);
}
function anchor(address, children) {
  if (!/^(?:https?:\/\/|mailto:)/i.test(address)) return element("span", {}, ...children);
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, ...children);
}
function render(block) {
  switch (block.kind) {
    case "paragraph":
      return element("p", {}, ...inline(block.text));
    case "heading":
      return element(`h${Math.min(block.level + 1, 6)}`, {}, ...inline(block.text));
    case "rule":
      return element("hr");
    case "quote":
      return element("blockquote", {}, ...block.blocks.map(render));
    case "list": {
      const items = block.items.map((blocks) => {
        const [first] = blocks;
        const tight = first?.kind === "paragraph" && blocks.every((block2, i) => i === 0 || block2.kind === "list");
        const children = blocks.map((block2, i) => tight && i === 0 ? element("span", {}, ...render(block2).childNodes) : render(block2));
        return element("li", {}, ...children);
      });
      return block.ordered ? element("ol", { start: block.start }, ...items) : element("ul", {}, ...items);
    }
    case "table": {
      const row = (tag) => (cells2) => element("tr", {}, ...block.align.map((align, i) => element(tag, { className: align }, ...inline(cells2[i] ?? ""))));
      const [head = [], ...body] = block.rows;
      const table = element("table", {}, element("thead", {}, row("th")(head)), element("tbody", {}, ...body.map(row("td"))));
      return element("div", { className: "table" }, table);
    }
    case "code": {
      const code = element("code", {}, ...highlight(block.text, block.language));
      const bar = element("div", { className: "code-bar" }, block.language || "text", copyButton("Copy code", () => block.text));
      const scrolled = element("pre", { tabIndex: 0 }, code);
      return element("div", { className: "code" }, bar, scrolled);
    }
  }
}
var sources = /* @__PURE__ */ new WeakMap();
function show(container, text2) {
  const blocks = parse(text2.replaceAll("\r\n", "\n").split("\n"));
  blocks.forEach((block, i) => {
    const source = JSON.stringify(block);
    const there = container.children[i];
    if (there && sources.get(there) === source) return;
    const made = render(block);
    sources.set(made, source);
    if (there) there.replaceWith(made);
    else container.append(made);
  });
  while (container.children.length > blocks.length) container.lastElementChild.remove();
}

// src/messages.ts
function messageView(message2, actions) {
  return message2.role === "user" ? userView(message2, actions) : answerView(message2, actions);
}
function userView(message2, actions) {
  const text2 = element("div", { className: "bubble", textContent: message2.content });
  const tools = element(
    "div",
    { className: "tools" },
    copyButton("Copy message", () => message2.content),
    iconButton("edit", "Edit message", () => node.replaceChildren(editor()))
  );
  const node = element("article", { className: "message user" }, text2, tools);
  node.setAttribute("aria-label", "You");
  const editor = () => {
    const area = element("textarea", { value: message2.content, rows: Math.min(12, message2.content.split("\n").length + 1) });
    area.setAttribute("aria-label", "Edit message");
    const cancel = () => node.replaceChildren(text2, tools);
    const send2 = () => {
      if (area.value.trim()) actions.edit(area.value.trim());
    };
    area.onkeydown = (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
      }
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send2();
      }
    };
    const buttons = element(
      "div",
      { className: "row" },
      element("button", { type: "button", className: "button", textContent: "Cancel", onclick: cancel }),
      element("button", { type: "button", className: "button primary", textContent: "Send", onclick: send2 })
    );
    setTimeout(() => area.focus());
    return element("div", { className: "editor" }, area, buttons);
  };
  return { node, update: () => {
  } };
}
function answerView(message2, actions) {
  const thoughts = element("div", { className: "markdown" });
  const summary = element("summary");
  const thinking = element("details", { className: "thinking", hidden: true }, summary, thoughts);
  const text2 = element("div", { className: "markdown" });
  const problem = element("p", { className: "problem", hidden: true });
  problem.setAttribute("role", "alert");
  const timing = element("span", { className: "timing" });
  const copy2 = copyButton("Copy answer", () => message2.content);
  const tools = element(
    "div",
    { className: "tools" },
    copy2,
    iconButton("again", "Regenerate", () => actions.regenerate()),
    timing
  );
  const node = element("article", { className: "message answer" }, thinking, text2, problem, tools);
  node.setAttribute("aria-label", "Answer");
  const update = (streaming) => {
    node.classList.toggle("streaming", streaming);
    node.classList.toggle("waiting", streaming && !message2.content && !message2.reasoning);
    node.setAttribute("aria-busy", String(streaming));
    thinking.hidden = !message2.reasoning;
    summary.textContent = streaming && !message2.content ? "Thinking…" : "Thoughts";
    show(thoughts, message2.reasoning ?? "");
    show(text2, message2.content);
    problem.hidden = !message2.problem;
    problem.textContent = message2.problem ?? "";
    tools.hidden = streaming;
    copy2.hidden = !message2.content;
    if (message2.timing) {
      const { tokens, perSecond, firstTokenMs } = message2.timing;
      const first = firstTokenMs < 1e3 ? `${Math.round(firstTokenMs)} ms` : `${(firstTokenMs / 1e3).toFixed(1)} s`;
      const rate2 = perSecond > 0 ? ` · ${perSecond.toFixed(1)} tokens/s` : "";
      timing.textContent = `${tokens} tokens${rate2} · first after ${first}`;
    }
  };
  return { node, update };
}

// src/store.ts
var NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed"];
var PREFIX = "akunu.conversation.";
var SETTINGS = "akunu.settings";
function isObject(value) {
  return typeof value === "object" && value !== null;
}
var text = (value) => typeof value === "string" ? value : "";
var number = (value) => typeof value === "number" && Number.isFinite(value) ? value : 0;
function read(key2) {
  try {
    return JSON.parse(localStorage.getItem(key2) ?? "null");
  } catch {
    return null;
  }
}
function message(value) {
  if (!isObject(value) || value.role !== "user" && value.role !== "assistant") return null;
  const read2 = { role: value.role, content: text(value.content) };
  if (value.reasoning) read2.reasoning = text(value.reasoning);
  if (value.problem) read2.problem = text(value.problem);
  if (isObject(value.timing)) {
    const { tokens, perSecond, firstTokenMs, context } = value.timing;
    read2.timing = {
      tokens: number(tokens),
      perSecond: number(perSecond),
      firstTokenMs: number(firstTokenMs),
      context: number(context)
    };
  }
  return read2;
}
function conversations() {
  const keys = Array.from({ length: localStorage.length }, (_, i) => localStorage.key(i) ?? "");
  return keys.filter((key2) => key2.startsWith(PREFIX)).map((key2) => conversation(key2.slice(PREFIX.length))).filter((found) => found !== null).sort((a, b) => b.updated - a.updated);
}
function conversation(id) {
  const value = read(PREFIX + id);
  if (!isObject(value) || !Array.isArray(value.messages)) return null;
  const messages = value.messages.map(message).filter((message2) => message2 !== null);
  return { id, title: text(value.title), updated: number(value.updated), messages };
}
function save(conversation2) {
  try {
    localStorage.setItem(PREFIX + conversation2.id, JSON.stringify(conversation2));
    return true;
  } catch {
    return false;
  }
}
function remove(id) {
  localStorage.removeItem(PREFIX + id);
}
function newConversation() {
  const id = `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`;
  return { id, title: "", updated: Date.now(), messages: [] };
}
function loadSettings() {
  const value = read(SETTINGS);
  const found = isObject(value) ? value : {};
  const settings2 = {
    model: text(found.model),
    system: text(found.system),
    key: text(found.key),
    thinking: found.thinking === "on" || found.thinking === "off" ? found.thinking : "",
    theme: found.theme === "light" || found.theme === "dark" ? found.theme : "",
    numbers: {}
  };
  const numbers = isObject(found.numbers) ? found.numbers : {};
  for (const name of NUMBERS) {
    if (typeof numbers[name] === "number") settings2.numbers[name] = number(numbers[name]);
  }
  return settings2;
}
function saveSettings(settings2) {
  try {
    localStorage.setItem(SETTINGS, JSON.stringify(settings2));
  } catch {
  }
}

// src/settings.ts
function openSettings(settings2, changed) {
  const panel = byId("settings", HTMLDialogElement);
  const system = byId("system", HTMLTextAreaElement);
  const key2 = byId("key", HTMLInputElement);
  const thinking = byId("thinking", HTMLSelectElement);
  const theme = byId("theme", HTMLSelectElement);
  const numbers = NUMBERS.map((name) => ({ name, input: byId(name, HTMLInputElement) }));
  const fill = () => {
    system.value = settings2.system;
    key2.value = settings2.key;
    thinking.value = settings2.thinking;
    theme.value = settings2.theme;
    for (const { name, input: input2 } of numbers) input2.value = settings2.numbers[name]?.toString() ?? "";
  };
  panel.oninput = () => {
    settings2.system = system.value;
    settings2.key = key2.value.trim();
    settings2.thinking = thinking.value;
    settings2.theme = theme.value;
    for (const { name, input: input2 } of numbers) {
      if (input2.value === "" || !input2.validity.valid) delete settings2.numbers[name];
      else settings2.numbers[name] = input2.valueAsNumber;
    }
    saveSettings(settings2);
    changed();
  };
  byId("reset", HTMLButtonElement).onclick = () => {
    settings2.numbers = {};
    settings2.thinking = "";
    saveSettings(settings2);
    fill();
    changed();
  };
  byId("close-settings", HTMLButtonElement).onclick = () => panel.close();
  panel.onclick = (event) => {
    if (event.target === panel) panel.close();
  };
  byId("open-settings", HTMLButtonElement).onclick = () => {
    fill();
    panel.showModal();
  };
}

// src/main.ts
var log = byId("log", HTMLElement);
var welcome = byId("welcome", HTMLElement);
var list = byId("conversations", HTMLElement);
var input = byId("input", HTMLTextAreaElement);
var send = byId("send", HTMLButtonElement);
var modelChoice = byId("model", HTMLSelectElement);
var meter = byId("meter", HTMLElement);
var rate = byId("rate", HTMLElement);
var notice = byId("notice", HTMLElement);
var sidebar = byId("sidebar", HTMLElement);
var settings = loadSettings();
var available = [];
var current = newConversation();
var views = [];
var running = null;
function showConversation() {
  views = current.messages.map(viewOf);
  views.forEach((view) => view.update(false));
  log.replaceChildren(...views.map((view) => view.node));
  welcome.hidden = views.length > 0;
  document.title = current.title ? `${current.title} · akunu` : "akunu";
  showMeter();
  showList();
  toEnd();
}
function viewOf(message2) {
  const from = () => current.messages.indexOf(message2);
  return messageView(message2, {
    edit(text2) {
      if (running) return;
      current.messages.splice(from());
      void ask(text2);
    },
    regenerate() {
      if (running) return;
      current.messages.splice(from());
      showConversation();
      void answer();
    }
  });
}
function showList() {
  const entries = conversations().map((conversation2) => {
    const title = conversation2.title || "New conversation";
    const open = element("button", { type: "button", className: "open", textContent: title, title });
    open.onclick = () => openConversation(conversation2.id);
    if (conversation2.id === current.id) open.setAttribute("aria-current", "true");
    const remove2 = iconButton("trash", `Delete “${title}”`, () => {
      if (!confirm(`Delete “${title}”?`)) return;
      remove(conversation2.id);
      if (conversation2.id === current.id) startNew();
      else showList();
    });
    return element("li", {}, open, remove2);
  });
  list.replaceChildren(...entries);
}
function showMeter() {
  const most = available.find((model) => model.id === settings.model)?.context ?? 0;
  const used = current.messages.findLast((message2) => message2.timing)?.timing?.context ?? 0;
  meter.hidden = most === 0;
  const share = most ? Math.min(1, used / most) : 0;
  meter.style.setProperty("--share", share.toFixed(3));
  meter.classList.toggle("full", share > 0.9);
  const label = `${used.toLocaleString("en")} of ${most.toLocaleString("en")} tokens of context`;
  meter.title = label;
  byId("meter-text", HTMLElement).textContent = `${used.toLocaleString("en")} / ${most.toLocaleString("en")}`;
}
function showRunning() {
  send.classList.toggle("stop", running !== null);
  const label = running ? "Stop (Esc)" : "Send (Enter)";
  send.title = label;
  send.setAttribute("aria-label", label);
  send.disabled = !running && !input.value.trim();
}
function showNotice(text2) {
  notice.textContent = text2;
  notice.hidden = !text2;
}
function showTheme() {
  document.documentElement.dataset.theme = settings.theme;
}
function isAtEnd() {
  return log.parentElement.scrollHeight - log.parentElement.scrollTop - log.parentElement.clientHeight < 80;
}
function toEnd() {
  log.parentElement.scrollTop = log.parentElement.scrollHeight;
}
function focusInput() {
  if (matchMedia("(hover: hover)").matches) input.focus();
}
function fitInput() {
  input.style.height = "auto";
  input.style.height = `${Math.min(input.scrollHeight, window.innerHeight * 0.4)}px`;
}
async function ask(text2) {
  current.messages.push({ role: "user", content: text2 });
  current.title ||= text2.length > 60 ? `${text2.slice(0, 57).trimEnd()}…` : text2;
  showConversation();
  await answer();
}
async function answer() {
  const conversation2 = current;
  const message2 = { role: "assistant", content: "" };
  const before = [...conversation2.messages];
  conversation2.messages.push(message2);
  const view = viewOf(message2);
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
    const follow2 = isAtEnd();
    view.update(true);
    if (follow2) toEnd();
    const seconds = (performance.now() - began) / 1e3;
    if (pieces > 4) rate.textContent = `${(pieces / seconds).toFixed(1)} tokens/s`;
  };
  const more = () => {
    if (pieces++ === 0) began = performance.now();
    painting ||= requestAnimationFrame(paint);
  };
  try {
    await chat(before, settings, controller.signal, {
      text(piece) {
        message2.content += piece;
        more();
      },
      reasoning(piece) {
        message2.reasoning = (message2.reasoning ?? "") + piece;
        more();
      },
      timing(timing) {
        message2.timing = timing;
      }
    });
  } catch (error) {
    if (controller.signal.aborted) message2.problem = "Stopped.";
    else if (error instanceof Problem) message2.problem = error.message;
    else message2.problem = `The page met a problem: ${String(error)}`;
  }
  cancelAnimationFrame(painting);
  rate.textContent = message2.timing && message2.timing.perSecond > 0 ? `${message2.timing.perSecond.toFixed(1)} tokens/s` : "";
  if (running === controller) running = null;
  const follow = isAtEnd();
  view.update(false);
  conversation2.updated = Date.now();
  if (!save(conversation2)) showNotice("The browser's storage is full: this conversation is not kept. Delete others to make room.");
  if (!available.find((model) => model.id === settings.model)?.context) void loadModels();
  showMeter();
  showList();
  showRunning();
  if (follow) toEnd();
}
function openConversation(id) {
  const found = conversation(id);
  if (!found) return showList();
  running?.abort();
  current = found;
  closeSidebar();
  showConversation();
  focusInput();
}
function startNew() {
  running?.abort();
  current = newConversation();
  rate.textContent = "";
  closeSidebar();
  showConversation();
  focusInput();
}
function submit() {
  if (running) return running.abort();
  const text2 = input.value.trim();
  if (!text2) return;
  input.value = "";
  fitInput();
  void ask(text2);
}
async function loadModels() {
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
function openSidebar() {
  sidebar.classList.add("shown");
  byId("menu", HTMLElement).setAttribute("aria-expanded", "true");
}
function closeSidebar() {
  sidebar.classList.remove("shown");
  byId("menu", HTMLElement).setAttribute("aria-expanded", "false");
}
input.oninput = () => {
  fitInput();
  showRunning();
};
input.onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (!running) submit();
  }
  if (event.key === "ArrowUp" && !input.value && !running) {
    const edits = log.querySelectorAll('.user [aria-label="Edit message"]');
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
byId("menu", HTMLButtonElement).onclick = () => sidebar.classList.contains("shown") ? closeSidebar() : openSidebar();
byId("shade", HTMLElement).onclick = closeSidebar;
for (const example of welcome.querySelectorAll("button")) {
  example.onclick = () => void ask(example.textContent ?? "");
}
modelChoice.onchange = () => {
  settings.model = modelChoice.value;
  saveSettings(settings);
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
var keyTyped = 0;
var key = settings.key;
openSettings(settings, () => {
  showTheme();
  if (settings.key === key) return;
  key = settings.key;
  clearTimeout(keyTyped);
  keyTyped = window.setTimeout(() => void loadModels(), 400);
});
showTheme();
showConversation();
showRunning();
void loadModels();
focusInput();
