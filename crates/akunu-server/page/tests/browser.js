// A server and a browser to look at it with.

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { mkdirSync } from "node:fs";
import { chromium } from "playwright-core";

const [BINARY, MODEL] = [process.env.AKUNU, process.env.AKUNU_MODEL];

/** Starts `akunu serve`; the process and its address. */
export async function startServer() {
  const process = spawn(BINARY, ["serve", `smollm2=${MODEL}`, "--port", "0", "--log", "off", "--ctx", "2048"], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  for await (const line of createInterface({ input: process.stderr })) {
    const found = /http:\/\/\S+/.exec(line);
    if (found) return { process, address: found[0] };
  }
  throw new Error("the server did not start");
}

/** Ends a server and waits for its end. */
export async function endServer(server, signal = "SIGKILL") {
  const ended = new Promise((resolve) => server.process.once("exit", resolve));
  server.process.kill(signal);
  await ended;
}

export function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
}

/** The page in a fresh profile. `close` fails if a script failed, or if anything but the server was asked for anything. */
export async function openPage(browser, address, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) wrong.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(address) && !request.url().startsWith("data:")) wrong.push(request.url());
  });
  await page.goto(address);
  await page.waitForFunction(() => document.querySelector("#model").value !== "");
  const close = async () => {
    await context.close();
    if (wrong.length) throw new Error(wrong.join("\n"));
  };
  return { page, context, close };
}

/** Answers every question with this text, as the server would. */
export async function answerWith(page, text, reasoning) {
  await page.route("**/v1/chat/completions", (route) => {
    const pieces = (text, name) => (text?.match(/[\s\S]{1,7}/g) ?? []).map((piece) => ({ choices: [{ delta: { [name]: piece } }] }));
    const chunks = [...pieces(reasoning, "reasoning_content"), ...pieces(text, "content")];
    chunks.push({
      choices: [],
      usage: { prompt_tokens: 311, completion_tokens: 212 },
      timings: { first_token_ms: 84.2, decode_per_second: 143.7 },
    });
    const body = chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("") + "data: [DONE]\n\n";
    return route.fulfill({ contentType: "text/event-stream", body });
  });
}

export async function say(page, text) {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
}

/**
 * Asks for a story, and waits for its first words. The model is held to a thousand characters: left alone, it ends one story in
 * fifty after a sentence.
 */
export async function startLongAnswer(page) {
  const atLength = (route) =>
    route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), guided_regex: "[a-z ]{1000,}" }) });
  await page.route("**/v1/chat/completions", atLength, { times: 1 });
  await say(page, "Tell me a very long story about the sea, with many chapters.");
  await page.waitForFunction(() => (document.querySelector(".answer > .markdown")?.textContent.length ?? 0) > 40);
}

/** Waits until the last answer is complete, and returns its text. */
export async function lastAnswer(page) {
  const last = page.locator(".answer").last();
  await last.and(page.locator('[aria-busy="false"]')).waitFor();
  return last.locator(".markdown").last().innerText();
}

/** Keeps a picture of the page where SCREENSHOTS says; nothing otherwise. */
export async function picture(page, name) {
  const folder = process.env.SCREENSHOTS;
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: `${folder}/${name}.png` });
}
