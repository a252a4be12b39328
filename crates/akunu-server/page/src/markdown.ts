// Markdown as models write it: headings, lists, quotes, tables, code, emphasis and links. HTML in it is text.

import { copyButton, element } from "./element";
import { highlight } from "./highlight";

type Block =
  | { kind: "paragraph"; text: string }
  | { kind: "heading"; level: number; text: string }
  | { kind: "code"; language: string; text: string }
  | { kind: "quote"; blocks: Block[] }
  | { kind: "list"; ordered: boolean; start: number; items: Block[][] }
  | { kind: "table"; align: string[]; rows: string[][] }
  | { kind: "rule" };

/** Lists and quotes within each other beyond this are plain paragraphs. */
const DEEPEST = 12;

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

function parse(lines: string[], depth = 0): Block[] {
  const blocks: Block[] = [];
  let paragraph: string[] = [];
  const close = () => {
    if (paragraph.length) blocks.push({ kind: "paragraph", text: paragraph.join("\n") });
    paragraph = [];
  };
  for (let i = 0; i < lines.length; ) {
    const line = lines[i]!;
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (!line.trim()) {
      close();
      i++;
    } else if (fence) {
      close();
      const [, indent = "", marks = "", language = ""] = fence;
      // While it streams, the end of a block may not be there yet.
      let end = i + 1;
      while (end < lines.length && !isClosing(lines[end]!, marks)) end++;
      const text = lines.slice(i + 1, end).map((line) => unindent(line, indent.length));
      blocks.push({ kind: "code", language, text: text.join("\n") });
      i = end + 1;
    } else if (heading) {
      close();
      blocks.push({ kind: "heading", level: heading[1]!.length, text: heading[2]! });
      i++;
    } else if (RULE.test(line)) {
      close();
      blocks.push({ kind: "rule" });
      i++;
    } else if (depth < DEEPEST && QUOTE.test(line)) {
      close();
      const inner: string[] = [];
      for (let match; i < lines.length && (match = QUOTE.exec(lines[i]!)); i++) inner.push(match[1]!);
      blocks.push({ kind: "quote", blocks: parse(inner, depth + 1) });
    } else if (depth < DEEPEST && ITEM.test(line)) {
      close();
      const list = parseList(lines, i, depth);
      blocks.push(list.block);
      i = list.end;
    } else if (line.includes("|") && TABLE_RULE.test(lines[i + 1] ?? "") && !paragraph.length) {
      const align = cells(lines[i + 1]!).map((cell) =>
        cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left",
      );
      const rows = [cells(line)];
      for (i += 2; i < lines.length && lines[i]!.includes("|"); i++) rows.push(cells(lines[i]!));
      blocks.push({ kind: "table", align, rows });
    } else {
      paragraph.push(line.trimStart());
      i++;
    }
  }
  close();
  return blocks;
}

function isClosing(line: string, marks: string): boolean {
  const text = line.trim();
  return text.length >= marks.length && text === marks[0]!.repeat(text.length);
}

function unindent(line: string, most: number): string {
  let spaces = 0;
  while (spaces < most && line[spaces] === " ") spaces++;
  return line.slice(spaces);
}

/** The list that begins at a line: its items go on in lines that are indented further than their marks. */
function parseList(lines: string[], begin: number, depth: number): { block: Block; end: number } {
  const [, indent = "", mark = ""] = ITEM.exec(lines[begin]!)!;
  const ordered = /\d/.test(mark);
  const items: string[][] = [];
  let i = begin;
  for (; i < lines.length; i++) {
    const line = lines[i]!.replace(/^\t+/, (tabs) => "    ".repeat(tabs.length));
    const item = ITEM.exec(line);
    const inner = line.length - line.trimStart().length > indent.length + 1;
    const belongs = item && item[1]!.length <= indent.length + 1 && /\d/.test(item[2]!) === ordered && !RULE.test(line);
    if (belongs && item[1]!.length < indent.length) break;
    if (belongs) {
      items.push([item[4]!]);
    } else if (!line.trim()) {
      // A blank line ends the list unless more of it follows.
      const next = lines.slice(i + 1).find((line) => line.trim());
      const more = next !== undefined && (next.search(/\S/) > indent.length + 1 || ITEM.exec(next)?.[1]?.length === indent.length);
      if (!more) break;
      items.at(-1)!.push("");
    } else if (inner || (!item && !FENCE.test(line) && !HEADING.test(line) && lines[i - 1]!.trim())) {
      const width = indent.length + mark.length + 1;
      items.at(-1)!.push(unindent(line, width));
    } else {
      break;
    }
  }
  const start = ordered ? parseInt(mark, 10) : 1;
  return { block: { kind: "list", ordered, start, items: items.map((item) => parse(item, depth + 1)) }, end: i };
}

function cells(line: string): string[] {
  return line
    .trim()
    .replace(/^\||\|$/g, "")
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll("\\|", "|"));
}

// What may stand within a line, tried at every character that can begin it.
const CODE = /(`+)([\s\S]*?[^`])\1(?!`)/y;
const LINK = /!?\[((?:[^[\]\\]|\\.)*)\]\(\s*([^\s()]+(?:\([^\s()]*\))?)(?:\s+"[^"]*")?\s*\)/y;
const ADDRESS = /https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]]/y;
const EMPHASIS = /(\*\*\*|\*\*|\*|~~|__|_)(?=\S)/y;
const SPECIAL = /[\\`*_~[!h]/g;

function at(pattern: RegExp, text: string, index: number): RegExpExecArray | null {
  pattern.lastIndex = index;
  return pattern.exec(text);
}

/** The nodes of a line of text. */
function inline(text: string, depth = 0): Node[] {
  const nodes: Node[] = [];
  let plain = "";
  const push = (node: Node) => {
    if (plain) nodes.push(document.createTextNode(plain));
    plain = "";
    nodes.push(node);
  };
  for (let i = 0; i < text.length; ) {
    SPECIAL.lastIndex = i;
    const next = SPECIAL.exec(text)?.index ?? text.length;
    plain += text.slice(i, next);
    i = next;
    const code = at(CODE, text, i);
    const link = at(LINK, text, i);
    const address = at(ADDRESS, text, i);
    const mark = at(EMPHASIS, text, i)?.[1];
    if (text[i] === "\\" && /[!-/:-@[-`{-~]/.test(text[i + 1] ?? "")) {
      plain += text[i + 1];
      i += 2;
    } else if (code) {
      push(element("code", { textContent: code[2]!.replaceAll("\n", " ") }));
      i += code[0].length;
    } else if (link && depth < DEEPEST) {
      push(anchor(link[2]!, inline(link[1]!, depth + 1)));
      i += link[0].length;
    } else if (address) {
      push(anchor(address[0], [document.createTextNode(address[0])]));
      i += address[0].length;
    } else {
      const end = mark && depth < DEEPEST ? closing(text, i, mark) : -1;
      if (mark && end > 0) {
        push(emphasised(mark, inline(text.slice(i + mark.length, end), depth + 1)));
        i = end + mark.length;
      } else {
        plain += text.slice(i, i + (mark?.length ?? 1));
        i += mark?.length ?? 1;
      }
    }
  }
  if (plain) nodes.push(document.createTextNode(plain));
  return nodes;
}

/** Where emphasis that begins at `begin` ends; -1 if nowhere. Marks within words mean something for `*` only. */
function closing(text: string, begin: number, mark: string): number {
  const isWord = (char: string | undefined) => char !== undefined && /\w/.test(char);
  if (mark[0] === "_" && isWord(text[begin - 1])) return -1;
  for (let end = begin + mark.length; (end = text.indexOf(mark, end + 1)) >= 0; ) {
    const inside = text[end - 1]!;
    const after = text[end + mark.length];
    const longer = mark.length === 1 && (after === mark || inside === mark);
    if (/\S/.test(inside) && !longer && !(mark[0] === "_" && isWord(after))) return end;
  }
  return -1;
}

function emphasised(mark: string, children: Node[]): HTMLElement {
  if (mark === "***") return element("strong", {}, element("em", {}, ...children));
  return element(mark === "~~" ? "del" : mark.length === 2 ? "strong" : "em", {}, ...children);
}

/** A link where its address is one of the web or of mail; else its text. */
function anchor(address: string, children: Node[]): Node {
  if (!/^(?:https?:\/\/|mailto:)/i.test(address)) return element("span", {}, ...children);
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

function render(block: Block): HTMLElement {
  switch (block.kind) {
    case "paragraph":
      return element("p", {}, ...inline(block.text));
    case "heading":
      return element(`h${Math.min(block.level + 1, 6)}` as "h2", {}, ...inline(block.text));
    case "rule":
      return element("hr");
    case "quote":
      return element("blockquote", {}, ...block.blocks.map(render));
    case "list": {
      const items = block.items.map((blocks) => {
        // A single paragraph needs no space of its own.
        const [first] = blocks;
        const tight = first?.kind === "paragraph" && blocks.every((block, i) => i === 0 || block.kind === "list");
        const children = blocks.map((block, i) => (tight && i === 0 ? element("span", {}, ...render(block).childNodes) : render(block)));
        return element("li", {}, ...children);
      });
      return block.ordered ? element("ol", { start: block.start }, ...items) : element("ul", {}, ...items);
    }
    case "table": {
      const row = (tag: "th" | "td") => (cells: string[]) =>
        element("tr", {}, ...block.align.map((align, i) => element(tag, { className: align }, ...inline(cells[i] ?? ""))));
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

/** What each rendered block was made of. */
const sources = new WeakMap<Element, string>();

/** Shows a text. Blocks that are there already stay: while a text streams, only its end changes. */
export function show(container: HTMLElement, text: string): void {
  const blocks = parse(text.replaceAll("\r\n", "\n").split("\n"));
  blocks.forEach((block, i) => {
    const source = JSON.stringify(block);
    const there = container.children[i];
    if (there && sources.get(there) === source) return;
    const made = render(block);
    sources.set(made, source);
    if (there) there.replaceWith(made);
    else container.append(made);
  });
  while (container.children.length > blocks.length) container.lastElementChild!.remove();
}
