// The chat page in a browser, against a server with a real model.
//
//     AKUNU=binary AKUNU_MODEL=model.gguf CHROMIUM=/usr/bin/chromium [SCREENSHOTS=folder] node --test tests/
//
// What a model says cannot be foreseen, so where the text matters the answer is made up, and the rest of the page is as always.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { answerWith, endServer, lastAnswer, launch, openPage, picture, say, startLongAnswer, startServer } from "./browser.js";

let server, browser;

before(async () => {
  [server, browser] = await Promise.all([startServer(), launch()]);
});
after(async () => {
  await browser?.close();
  if (server) await endServer(server, "SIGTERM");
});

const open = (options) => openPage(browser, server.address, options);

const MARKDOWN = `Here is a **short** answer with \`code\`, *emphasis* and a [link](https://example.org/a_(b)).

## Steps

1. Read the words
   - one by one
   - with care
2. Keep the longest

| word | length |
|:-----|-------:|
| ember | 5 |
| lentils | 7 |

\`\`\`python
# The longest word of a text.
def longest(text: str) -> str:
    words = text.split()
    return max(words, key=len, default="")
\`\`\`

> It looks at every word once.`;

test("a conversation is answered, timed, kept and found again", async () => {
  const { page, close } = await open();
  await picture(page, "welcome");
  await page.keyboard.press("Control+,");
  await page.getByLabel("Temperature").fill("0");
  await page.keyboard.press("Escape");
  await say(page, "What is the capital of France? Answer in one sentence.");
  assert.match(await lastAnswer(page), /Paris/);
  await say(page, "And of Spain?");
  assert.ok((await lastAnswer(page)).length > 0);
  assert.equal(await page.locator(".message").count(), 4);
  assert.match(await page.locator(".timing").last().innerText(), /^\d+ tokens · [\d.]+ tokens\/s · first after /);
  assert.match(await page.locator("#meter-text").innerText(), /^\d+ \/ 2,048$/);

  await page.reload();
  assert.equal(await page.locator(".message").count(), 0);
  await page.getByRole("button", { name: "What is the capital of France? Answer in one sentence.", exact: true }).click();
  assert.equal(await page.locator(".message").count(), 4);
  page.once("dialog", (dialog) => dialog.accept());
  await page.locator("#conversations li").hover();
  await page.locator("#conversations li .icon-button").click();
  assert.equal(await page.locator("#conversations li").count(), 0);
  await close();
});

test("Escape stops an answer, in the page and in the server", async () => {
  const { page, close } = await open();
  await startLongAnswer(page);
  await page.getByRole("button", { name: "Stop (Esc)" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByText("Stopped.").waitFor();
  const said = await lastAnswer(page);
  for (let running = 1; running > 0; ) {
    const metrics = await (await fetch(`${server.address}/v1/metrics`)).json();
    running = metrics.models.smollm2.running;
  }
  assert.equal(await lastAnswer(page), said);
  await close();
});

test("an answer can be had again, and a question changed", async () => {
  const { page, close } = await open();
  const asked = [];
  page.on("request", (request) => {
    if (request.url().endsWith("/v1/chat/completions")) asked.push(request.postDataJSON());
  });
  await answerWith(page, "First.");
  await say(page, "One");
  assert.equal(await lastAnswer(page), "First.");
  await page.unroute("**/v1/chat/completions");
  await answerWith(page, "Second.");
  await page.getByRole("button", { name: "Regenerate" }).click();
  await page.getByText("Second.").waitFor();
  // The arrow up in an empty field edits what was said last.
  await page.getByLabel("Message", { exact: true }).press("ArrowUp");
  await page.getByRole("textbox", { name: "Edit message" }).fill("Two");
  await page.keyboard.press("Enter");
  await page.locator(".bubble", { hasText: "Two" }).waitFor();
  await lastAnswer(page);
  assert.equal(await page.locator(".message").count(), 2);
  assert.deepEqual(asked.map((body) => body.messages.at(-1).content), ["One", "One", "Two"]);
  await close();
});

test("Markdown is shown as it is meant, and code can be copied", async () => {
  const { page, context, close } = await open();
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await answerWith(page, MARKDOWN, "The person wants the longest word. A single pass is enough.");
  await say(page, "Write a Python function that finds the longest word in a text.");
  await lastAnswer(page);
  assert.equal(await page.locator("ol > li ul > li").count(), 2);
  assert.deepEqual(await page.locator("td").allInnerTexts(), ["ember", "5", "lentils", "7"]);
  assert.equal(await page.locator(".markdown a").getAttribute("href"), "https://example.org/a_(b)");
  assert.deepEqual(await page.locator(".hl-keyword").allInnerTexts(), ["def", "return"]);
  assert.equal(await page.locator(".thinking summary").innerText(), "Thoughts");
  await page.getByRole("button", { name: "Copy code" }).click();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.ok(copied.startsWith("# The longest word") && copied.endsWith('default="")'), copied);
  await page.getByRole("button", { name: "Copy answer" }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), MARKDOWN);
  await picture(page, "light");
  await close();
});

test("what a model says or storage holds never becomes markup", async () => {
  const hostile = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script> [a](javascript:window.pwned=1) ![b](x"onerror=1)
<svg onload=window.pwned=1> \`<b>\` [c](data:text/html,x) **<i>** | <u> |\n\n\`\`\`html"><img src=x onerror=window.pwned=1>\n<script>\n\`\`\``;
  const { page, close } = await open();
  await answerWith(page, hostile, hostile);
  await say(page, hostile);
  await lastAnswer(page);
  await page.evaluate((hostile) => {
    const message = { role: "assistant", content: hostile, problem: hostile, timing: { tokens: hostile, perSecond: {} } };
    const stored = { id: hostile, title: hostile, updated: "x", messages: [message, { role: "system" }, null, 7] };
    localStorage.setItem("akunu.conversation.hostile", JSON.stringify(stored));
    localStorage.setItem("akunu.conversation.broken", "{");
    localStorage.setItem("akunu.settings", JSON.stringify({ system: hostile, theme: hostile, numbers: { seed: hostile } }));
  }, hostile);
  await page.reload();
  await page.locator("#conversations .open", { hasText: "onerror" }).last().click();
  await page.locator(".answer").first().waitFor();
  assert.equal(await page.locator(".answer :is(img, script, b, i, u), .answer svg[onload], #conversations img").count(), 0);
  const links = await page.locator(".answer a").evaluateAll((links) => links.map((link) => link.protocol));
  assert.ok(links.every((protocol) => protocol === "https:"), links.join());
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  await close();
});

test("the page follows the system into the dark, or the settings", async () => {
  const { page, close } = await open({ colorScheme: "dark" });
  const lightness = () =>
    page.evaluate(() => Math.max(...getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).map(Number)));
  assert.ok((await lightness()) < 60);
  await answerWith(page, MARKDOWN);
  await say(page, "Write a Python function that finds the longest word in a text.");
  await lastAnswer(page);
  await picture(page, "dark");
  await page.keyboard.press("Control+,");
  await picture(page, "dark-settings");
  await page.getByLabel("Appearance").selectOption("light");
  assert.ok((await lightness()) > 200);
  await page.reload();
  assert.ok((await lightness()) > 200);
  await close();
});

test("the page fits a phone", async () => {
  const { page, close } = await open({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
  await picture(page, "phone-welcome");
  await answerWith(page, `${MARKDOWN}\n\n${"word".repeat(60)}\n\n\`\`\`\n${"long line ".repeat(40)}\n\`\`\``);
  await say(page, "Write a Python function that finds the longest word in a text.");
  await lastAnswer(page);
  await picture(page, "phone");
  const width = () => page.evaluate(() => document.documentElement.scrollWidth);
  assert.equal(await width(), 390);
  assert.equal(await page.locator("#conversations .open").isVisible(), false);
  await page.getByRole("button", { name: "Conversations" }).click();
  await page.locator("#conversations .open").waitFor();
  await page.waitForTimeout(300);
  await picture(page, "phone-conversations");
  await page.locator("#conversations .open").click();
  await page.locator("#sidebar:not(.shown)").waitFor();
  await page.getByRole("button", { name: "Settings" }).click();
  assert.equal(await width(), 390);
  await close();
});

test("settings reach the server, and the keyboard is enough", async () => {
  const { page, close } = await open();
  await page.keyboard.press("Control+,");
  await page.getByLabel("System prompt").fill("Answer in capitals.");
  await page.getByLabel("Temperature").fill("0.3");
  await page.getByLabel("Most tokens").fill("5");
  await page.getByLabel("Seed").fill("7");
  await page.getByLabel("Thinking").selectOption("off");
  await picture(page, "settings");
  await page.keyboard.press("Escape");
  const request = page.waitForRequest("**/v1/chat/completions");
  await say(page, "Hello");
  const { messages, temperature, max_tokens, seed, top_p, chat_template_kwargs } = (await request).postDataJSON();
  assert.deepEqual(messages, [
    { role: "system", content: "Answer in capitals." },
    { role: "user", content: "Hello" },
  ]);
  assert.deepEqual([temperature, max_tokens, seed, top_p], [0.3, 5, 7, undefined]);
  assert.deepEqual(chat_template_kwargs, { enable_thinking: false });
  await lastAnswer(page);
  assert.match(await page.locator(".timing").innerText(), /^[1-5] tokens/);
  await page.keyboard.press("Control+Shift+o");
  assert.equal(await page.locator(".message").count(), 0);
  await close();
});

test("a server that refuses or dies is told of where one looks", async () => {
  const mortal = await startServer();
  const { page, context } = await openPage(browser, mortal.address);
  await page.getByLabel("Message", { exact: true }).fill("a ".repeat(5000));
  await page.keyboard.press("Enter");
  await page.getByText(/the context/).waitFor();
  await page.getByRole("button", { name: "New conversation" }).first().click();

  await startLongAnswer(page);
  await endServer(mortal);
  await page.getByText("The connection was lost before the answer was complete.").waitFor();
  await say(page, "Are you there?");
  await page.getByText("The server cannot be reached. Is it still running?").waitFor();
  await picture(page, "dead");
  await page.getByRole("button", { name: "Regenerate" }).last().waitFor();
  await context.close();
});

test("the interfaces are shown with commands to copy", async () => {
  const { page, close } = await openPage(browser, server.address);
  await page.goto(`${server.address}/docs`);
  await page.locator("summary code", { hasText: /^\/v1\/chat\/completions$/ }).click();
  const command = page.locator("details[open] pre");
  assert.match(await command.innerText(), /^curl -s http:\/\/127\.0\.0\.1:\d+\/v1\/chat\/completions -d '\{"model":"smollm2","messages"/);
  assert.ok((await page.locator("details").count()) > 20);
  await picture(page, "docs");
  await close();
});
