// Elements of the page. Text always becomes text nodes: nothing in this page is ever parsed as HTML, so nothing a model
// says and nothing that was stored can become markup.

type Children = (Node | string | null | undefined | false)[];

/** An element with properties and children; what is null, undefined or false is left out. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Partial<HTMLElementTagNameMap[K]> = {},
  ...children: Children
): HTMLElementTagNameMap[K] {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((child): child is Node | string => child instanceof Node || typeof child === "string"));
  return made;
}

/** The element of the page with this id. */
export function byId<T extends HTMLElement>(id: string, kind: new () => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${kind.name} #${id}`);
  return found;
}

/** A small button with a drawing. `label` is what it is called by tooltips and screen readers. */
export function iconButton(icon: IconName, label: string, onclick: () => void): HTMLButtonElement {
  const button = element("button", { type: "button", className: "icon-button", title: label, onclick }, drawing(icon));
  button.setAttribute("aria-label", label);
  return button;
}

// Lines on a grid of 24 by 24.
const ICONS = {
  copy: "M9 9h11v11H9z M15 9V4H4v11h5",
  done: "M4 12l6 6L20 6",
  edit: "M4 20h4L19 9l-4-4L4 16z M13 7l4 4",
  again: "M20 11A8 8 0 1 0 18 17 M20 5v6h-6",
  trash: "M4 7h16 M9 7V4h6v3 M6 7l1 13h10l1-13",
} as const;

export type IconName = keyof typeof ICONS;

const SVG = "http://www.w3.org/2000/svg";

export function drawing(icon: IconName): SVGSVGElement {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[icon]);
  svg.append(path);
  return svg;
}

/** Puts a text on the clipboard. Browsers have a proper way only where the page is secure: not over plain HTTP. */
export async function copy(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = element("textarea", { value: text, className: "offscreen" });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** A button that copies, and shows for a moment that it did. */
export function copyButton(label: string, text: () => string): HTMLButtonElement {
  const button = iconButton("copy", label, () => {
    void copy(text()).then(() => {
      button.replaceChildren(drawing("done"));
      setTimeout(() => button.replaceChildren(drawing("copy")), 1500);
    });
  });
  return button;
}
