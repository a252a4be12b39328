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
  const sources = [language.comments, language.strings, number2, String.raw`[A-Za-z_]\w*[!?]?(?=(\s*\()?)`];
  return new RegExp(sources.map((source) => `(${source})`).join("|"), "g");
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

// src/store.ts
var NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed"];
var SETTINGS = "akunu.settings";
function isObject(value) {
  return typeof value === "object" && value !== null;
}
var text = (value) => typeof value === "string" ? value : "";
var number = (value) => typeof value === "number" && Number.isFinite(value) ? value : 0;
function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null");
  } catch {
    return null;
  }
}
function loadSettings() {
  const value = read(SETTINGS);
  const found = isObject(value) ? value : {};
  const settings = {
    model: text(found.model),
    system: text(found.system),
    key: text(found.key),
    thinking: found.thinking === "on" || found.thinking === "off" ? found.thinking : "",
    theme: found.theme === "light" || found.theme === "dark" ? found.theme : "",
    numbers: {}
  };
  const numbers = isObject(found.numbers) ? found.numbers : {};
  for (const name of NUMBERS) {
    if (typeof numbers[name] === "number") settings.numbers[name] = number(numbers[name]);
  }
  return settings;
}

// src/docs.ts
function example(method, path, kind, schema) {
  const address = new URL(`.${path}`, document.baseURI);
  if (!schema) return method === "get" ? `curl -s ${address}` : `curl -s -X ${method.toUpperCase()} ${address}`;
  if (kind === "multipart/form-data") return `curl -s ${address} -F file=@recording.mp3`;
  const wanted = /* @__PURE__ */ new Set(["model", "max_tokens", "id", ...schema.required ?? []]);
  const fields = Object.entries(schema.properties ?? {}).filter(([name, field]) => wanted.has(name) && field.example !== void 0);
  const body = JSON.stringify(Object.fromEntries(fields.map(([name, field]) => [name, field.example])));
  return `curl -s ${address} -d '${body}'`;
}
function fieldsOf(schema) {
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) => {
    const needed = schema.required?.includes(name) ? element("em", { textContent: " needed" }) : null;
    const kind = field.$ref ? "object" : [field.type ?? "any"].flat().join(" or ");
    return element(
      "tr",
      {},
      element("td", {}, element("code", { textContent: name }), needed),
      element("td", { textContent: kind }),
      element("td", { textContent: field.description ?? "" })
    );
  });
  return element("div", { className: "table" }, element("table", {}, element("tbody", {}, ...rows)));
}
function show(description) {
  byId("about", HTMLElement).textContent = description.info.description;
  const list = byId("operations", HTMLElement);
  let tag = "";
  for (const [path, operations] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      if (operation.tags[0] !== tag) {
        tag = operation.tags[0] ?? "";
        list.append(element("h2", { textContent: tag }));
      }
      const [kind, body] = Object.entries(operation.requestBody?.content ?? {})[0] ?? [];
      const name = body?.schema.$ref?.split("/").pop();
      const schema = name ? description.components.schemas[name] : void 0;
      const command = example(method, path, kind, schema);
      const bar = element("div", { className: "code-bar" }, "sh", copyButton("Copy command", () => command));
      const code = element("pre", {}, element("code", {}, ...highlight(command, "sh")));
      const summary = element(
        "summary",
        {},
        element("span", { className: `method ${method}`, textContent: method.toUpperCase() }),
        element("code", { textContent: path }),
        element("span", { className: "hint", textContent: operation.summary })
      );
      list.append(
        element("details", {}, summary, schema ? fieldsOf(schema) : null, element("div", { className: "code" }, bar, code))
      );
    }
  }
}
document.documentElement.dataset.theme = loadSettings().theme;
var response = await fetch(new URL("openapi.json", document.baseURI));
show(await response.json());
