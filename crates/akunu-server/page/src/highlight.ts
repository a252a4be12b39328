// Colours for code: comments, strings, numbers, keywords and names that are called. One pass over the text with one
// pattern per kind of language; whoever wants more opens an editor.

interface Language {
  names: string[];
  comments: string;
  strings: string;
  keywords: string;
}

const C_COMMENTS = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`;
const HASH_COMMENTS = String.raw`#[^\n]*`;
const QUOTED = String.raw`"(?:[^"\\\n]|\\[\s\S])*"?|'(?:[^'\\\n]|\\[\s\S])*'?`;
const BACKQUOTED = "`(?:[^`\\\\]|\\\\[\\s\\S])*`?";

const LANGUAGES: Language[] = [
  {
    names: ["rust", "rs"],
    comments: C_COMMENTS,
    // A quote alone begins a lifetime.
    strings: String.raw`b?"(?:[^"\\]|\\[\s\S])*"?|'(?:[^'\\\n]|\\.)'`,
    keywords:
      "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
  },
  {
    names: ["javascript", "js", "jsx", "typescript", "ts", "tsx"],
    comments: C_COMMENTS,
    strings: `${QUOTED}|${BACKQUOTED}`,
    keywords:
      "abstract as async await break case catch class const continue default delete do else enum export extends false finally for from function if implements import in instanceof interface let new null of private public readonly return static super switch this throw true try type typeof undefined var void while yield",
  },
  {
    names: ["python", "py"],
    comments: HASH_COMMENTS,
    strings: String.raw`[fbru]{0,2}"""[\s\S]*?(?:"""|$)|[fbru]{0,2}'''[\s\S]*?(?:'''|$)|${QUOTED}`,
    keywords:
      "and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield",
  },
  {
    names: ["c", "h", "cpp", "c++", "cc", "hpp", "java", "cs", "csharp", "go", "kotlin", "kt", "swift", "php", "dart", "scala", "zig"],
    comments: C_COMMENTS,
    strings: `${QUOTED}|${BACKQUOTED}`,
    keywords:
      "abstract auto bool break byte case catch chan char class const continue data def default defer delete do double echo else enum explicit export extends extern false final finally float fn for foreach fun func function go goto guard if implements import in include inline int interface internal let long map mutable namespace new nil null nullptr object operator override package private protected protocol public range return short signed sizeof static string struct super switch template this throw throws true try type typedef typename union unsigned using val var virtual void volatile when where while",
  },
  {
    names: ["bash", "sh", "shell", "zsh", "console", "dockerfile", "makefile"],
    comments: String.raw`(?<![^\s])#[^\n]*`,
    strings: QUOTED,
    keywords:
      "alias apt case cat cd cp curl do docker done echo elif else esac exit export fi for from function git grep if in install let local ls mkdir mv npm pip read return rm run sed set source sudo then unset until wget while",
  },
  {
    names: ["sql", "sqlite", "postgresql", "mysql"],
    comments: String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`,
    strings: QUOTED,
    keywords:
      "ADD ALL ALTER AND AS ASC BETWEEN BY CASE CREATE DEFAULT DELETE DESC DISTINCT DROP ELSE END EXISTS FOREIGN FROM GROUP HAVING IN INDEX INNER INSERT INTO IS JOIN KEY LEFT LIKE LIMIT NOT NULL ON OR ORDER OUTER PRIMARY REFERENCES RIGHT SELECT SET TABLE THEN UNION UNIQUE UPDATE VALUES VIEW WHEN WHERE WITH",
  },
  { names: ["json", "json5", "jsonc"], comments: C_COMMENTS, strings: QUOTED, keywords: "true false null" },
  { names: ["toml", "ini", "yaml", "yml"], comments: HASH_COMMENTS, strings: QUOTED, keywords: "true false null yes no on off" },
  { names: ["html", "xml", "svg"], comments: String.raw`<!--[\s\S]*?(?:-->|$)`, strings: QUOTED, keywords: "" },
  { names: ["css", "scss", "less"], comments: C_COMMENTS, strings: QUOTED, keywords: "important media import supports keyframes root" },
  {
    names: ["ruby", "rb", "perl", "r", "julia", "elixir"],
    comments: HASH_COMMENTS,
    strings: QUOTED,
    keywords:
      "and begin case class def defmodule defp do else elsif end ensure false for function if in module my next nil not or return self sub then true unless until use when while yield",
  },
  {
    names: ["lua", "haskell", "hs"],
    comments: String.raw`--[^\n]*`,
    strings: QUOTED,
    keywords:
      "and break case class data deriving do else elseif end false for function if import in instance let local module newtype nil not of or repeat return then true type until where while",
  },
];

/** Beyond this many characters code stays plain: colours must not make the page slow. */
const MOST = 30_000;

/** What each group of a language's pattern is shown as. */
const KINDS = ["comment", "string", "number", "word"] as const;

function patternOf(language: Language): RegExp {
  const number = String.raw`\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*`;
  const sources = [language.comments, language.strings, number, String.raw`[A-Za-z_]\w*[!?]?(?=(\s*\()?)`];
  return new RegExp(sources.map((source) => `(${source})`).join("|"), "g");
}

/** The text as nodes, coloured if the language is known. */
export function highlight(text: string, name: string): Node[] {
  const language = LANGUAGES.find((language) => language.names.includes(name.toLowerCase()));
  if (!language || text.length > MOST) return [document.createTextNode(text)];
  const keywords = new Set(language.keywords.split(" "));
  const anyCase = name.toLowerCase().includes("sql");
  const nodes: Node[] = [];
  let end = 0;
  for (const match of text.matchAll(patternOf(language))) {
    const kind = KINDS.find((_, i) => match[i + 1] !== undefined);
    const word = match[0];
    let shown: string | undefined = kind;
    if (kind === "word") {
      const known = keywords.has(anyCase ? word.toUpperCase() : word);
      shown = known ? "keyword" : match[5] !== undefined ? "called" : undefined;
    }
    if (!shown || !word) continue;
    if (match.index > end) nodes.push(document.createTextNode(text.slice(end, match.index)));
    const span = document.createElement("span");
    span.className = `hl-${shown}`;
    span.textContent = word;
    nodes.push(span);
    end = match.index + word.length;
  }
  nodes.push(document.createTextNode(text.slice(end)));
  return nodes;
}
