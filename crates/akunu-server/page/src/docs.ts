// The server's description of itself, as a page.

import { byId, copyButton, element } from "./element";
import { highlight } from "./highlight";
import { loadSettings } from "./store";

interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  example?: unknown;
  properties?: Record<string, Schema>;
  required?: string[];
}

interface Operation {
  tags: string[];
  summary: string;
  /** By the type of the body. */
  requestBody?: { content: Record<string, { schema: Schema }> };
}

interface Description {
  info: { description: string };
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema> };
}

/** A command that works, made of the examples of the fields that must be there. */
function example(method: string, path: string, kind: string | undefined, schema: Schema | undefined): string {
  const address = new URL(`.${path}`, document.baseURI);
  if (!schema) return method === "get" ? `curl -s ${address}` : `curl -s -X ${method.toUpperCase()} ${address}`;
  if (kind === "multipart/form-data") return `curl -s ${address} -F file=@recording.mp3`;
  const wanted = new Set(["model", "max_tokens", "id", ...(schema.required ?? [])]);
  const fields = Object.entries(schema.properties ?? {}).filter(([name, field]) => wanted.has(name) && field.example !== undefined);
  const body = JSON.stringify(Object.fromEntries(fields.map(([name, field]) => [name, field.example])));
  return `curl -s ${address} -d '${body}'`;
}

function fieldsOf(schema: Schema): HTMLElement {
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) => {
    const needed = schema.required?.includes(name) ? element("em", { textContent: " needed" }) : null;
    const kind = field.$ref ? "object" : [field.type ?? "any"].flat().join(" or ");
    return element(
      "tr",
      {},
      element("td", {}, element("code", { textContent: name }), needed),
      element("td", { textContent: kind }),
      element("td", { textContent: field.description ?? "" }),
    );
  });
  return element("div", { className: "table" }, element("table", {}, element("tbody", {}, ...rows)));
}

function show(description: Description): void {
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
      const schema = name ? description.components.schemas[name] : undefined;
      const command = example(method, path, kind, schema);
      const bar = element("div", { className: "code-bar" }, "sh", copyButton("Copy command", () => command));
      const code = element("pre", {}, element("code", {}, ...highlight(command, "sh")));
      const summary = element(
        "summary",
        {},
        element("span", { className: `method ${method}`, textContent: method.toUpperCase() }),
        element("code", { textContent: path }),
        element("span", { className: "hint", textContent: operation.summary }),
      );
      list.append(
        element("details", {}, summary, schema ? fieldsOf(schema) : null, element("div", { className: "code" }, bar, code)),
      );
    }
  }
}

document.documentElement.dataset.theme = loadSettings().theme;
const response = await fetch(new URL("openapi.json", document.baseURI));
show((await response.json()) as Description);
