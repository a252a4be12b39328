// What the browser keeps: conversations, one entry each so that two tabs do not overwrite each other's, and settings.
// Entries may have been written by anyone with access to the browser: they are checked when they are read.

export interface Timing {
  tokens: number;
  perSecond: number;
  firstTokenMs: number;
  /** Tokens of the prompt and the answer together. */
  context: number;
}

export interface Message {
  role: "user" | "assistant";
  content: string;
  reasoning?: string;
  timing?: Timing;
  /** Why there is no more of it. */
  problem?: string;
}

export interface Conversation {
  id: string;
  title: string;
  /** Milliseconds since 1970. */
  updated: number;
  messages: Message[];
}

/** Numbers that change how answers are sampled; absent ones are the server's to choose. */
export const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed"] as const;

export type NumberName = (typeof NUMBERS)[number];

export interface Settings {
  model: string;
  system: string;
  key: string;
  thinking: "" | "on" | "off";
  theme: "" | "light" | "dark";
  numbers: Partial<Record<NumberName, number>>;
}

const PREFIX = "akunu.conversation.";
const SETTINGS = "akunu.settings";

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

const text = (value: unknown) => (typeof value === "string" ? value : "");
const number = (value: unknown) => (typeof value === "number" && Number.isFinite(value) ? value : 0);

function read(key: string): unknown {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null");
  } catch {
    return null;
  }
}

function message(value: unknown): Message | null {
  if (!isObject(value) || (value.role !== "user" && value.role !== "assistant")) return null;
  const read: Message = { role: value.role, content: text(value.content) };
  if (value.reasoning) read.reasoning = text(value.reasoning);
  if (value.problem) read.problem = text(value.problem);
  if (isObject(value.timing)) {
    const { tokens, perSecond, firstTokenMs, context } = value.timing;
    read.timing = {
      tokens: number(tokens),
      perSecond: number(perSecond),
      firstTokenMs: number(firstTokenMs),
      context: number(context),
    };
  }
  return read;
}

/** All conversations, the latest first. */
export function conversations(): Conversation[] {
  const keys = Array.from({ length: localStorage.length }, (_, i) => localStorage.key(i) ?? "");
  return keys
    .filter((key) => key.startsWith(PREFIX))
    .map((key) => conversation(key.slice(PREFIX.length)))
    .filter((found) => found !== null)
    .sort((a, b) => b.updated - a.updated);
}

export function conversation(id: string): Conversation | null {
  const value = read(PREFIX + id);
  if (!isObject(value) || !Array.isArray(value.messages)) return null;
  const messages = value.messages.map(message).filter((message) => message !== null);
  return { id, title: text(value.title), updated: number(value.updated), messages };
}

/** False if the browser has no room for it. */
export function save(conversation: Conversation): boolean {
  try {
    localStorage.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
    return true;
  } catch {
    return false;
  }
}

export function remove(id: string): void {
  localStorage.removeItem(PREFIX + id);
}

export function newConversation(): Conversation {
  const id = `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`;
  return { id, title: "", updated: Date.now(), messages: [] };
}

export function loadSettings(): Settings {
  const value = read(SETTINGS);
  const found = isObject(value) ? value : {};
  const settings: Settings = {
    model: text(found.model),
    system: text(found.system),
    key: text(found.key),
    thinking: found.thinking === "on" || found.thinking === "off" ? found.thinking : "",
    theme: found.theme === "light" || found.theme === "dark" ? found.theme : "",
    numbers: {},
  };
  const numbers = isObject(found.numbers) ? found.numbers : {};
  for (const name of NUMBERS) {
    if (typeof numbers[name] === "number") settings.numbers[name] = number(numbers[name]);
  }
  return settings;
}

export function saveSettings(settings: Settings): void {
  try {
    localStorage.setItem(SETTINGS, JSON.stringify(settings));
  } catch {
    // They hold until the page is closed.
  }
}
