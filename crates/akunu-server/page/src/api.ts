// The server, through the same interface as everybody else's clients.

import type { Message, Settings, Timing } from "./store";

export interface Model {
  id: string;
  context: number;
}

/** Why there is no answer, in words for the person who asked. */
export class Problem extends Error {}

const UNREACHABLE = "The server cannot be reached. Is it still running?";

/** Addresses are relative to the page, so that it works behind a proxy that adds a path. */
async function call(path: string, settings: Settings, init: RequestInit = {}): Promise<Response> {
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (settings.key) headers.authorization = `Bearer ${settings.key}`;
  let response: Response;
  try {
    response = await fetch(new URL(path, document.baseURI), { ...init, headers });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Problem(UNREACHABLE);
  }
  if (response.ok) return response;
  const body = (await response.json().catch(() => null)) as { error?: { message?: unknown } } | null;
  const message = body?.error?.message;
  if (response.status === 401) throw new Problem("The server wants an API key. Enter it in the settings.");
  throw new Problem(typeof message === "string" ? message : `The server answered with status ${response.status}.`);
}

/** What the server has to talk to: not what embeds or listens alone. */
export async function models(settings: Settings): Promise<Model[]> {
  const response = await call("v1/models", settings);
  const body = (await response.json()) as { data: { id: string; context_length: number; tasks?: string[] }[] };
  const writers = body.data.filter(({ tasks }) => tasks?.includes("write") ?? true);
  return writers.map(({ id, context_length }) => ({ id, context: context_length }));
}

export interface Listener {
  text(piece: string): void;
  reasoning(piece: string): void;
  timing(timing: Timing): void;
}

interface Chunk {
  error?: { message: string };
  choices?: { delta?: { content?: string; reasoning_content?: string }; finish_reason?: string | null }[];
  usage?: { prompt_tokens: number; completion_tokens: number } | null;
  timings?: { first_token_ms: number; decode_per_second: number };
}

/** Asks for an answer and tells the listener of it as it comes. Ends when it is complete, or throws. */
export async function chat(messages: Message[], settings: Settings, signal: AbortSignal, listener: Listener): Promise<void> {
  const said = messages.filter((message) => message.content).map(({ role, content }) => ({ role, content }));
  const system = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
  const body = {
    model: settings.model,
    messages: [...system, ...said],
    stream: true,
    stream_options: { include_usage: true },
    ...settings.numbers,
    ...(settings.thinking && { chat_template_kwargs: { enable_thinking: settings.thinking === "on" } }),
  };
  const response = await call("v1/chat/completions", settings, { method: "POST", body: JSON.stringify(body), signal });
  for await (const data of events(response, signal)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data) as Chunk;
    if (chunk.error) throw new Problem(chunk.error.message);
    const delta = chunk.choices?.[0]?.delta;
    if (delta?.reasoning_content) listener.reasoning(delta.reasoning_content);
    if (delta?.content) listener.text(delta.content);
    if (chunk.usage) {
      listener.timing({
        tokens: chunk.usage.completion_tokens,
        perSecond: chunk.timings?.decode_per_second ?? 0,
        firstTokenMs: chunk.timings?.first_token_ms ?? 0,
        context: chunk.usage.prompt_tokens + chunk.usage.completion_tokens,
      });
    }
  }
  throw new Problem("The connection was lost before the answer was complete.");
}

/** The data of server-sent events. */
async function* events(response: Response, signal: AbortSignal): AsyncGenerator<string> {
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    let part: ReadableStreamReadResult<Uint8Array>;
    try {
      part = await reader.read();
    } catch (error) {
      if (signal.aborted) throw error;
      return;
    }
    if (part.done) return;
    rest += decoder.decode(part.value, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop()!;
    for (const line of lines) {
      if (line.startsWith("data: ")) yield line.slice(6);
    }
  }
}
