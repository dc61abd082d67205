"use strict";
// What all drawings share: elements, figures as the report writes them, packed numbers, the theme.
const runs = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const drawings = {};
// Called after a change of the theme or of the width.
const repaints = [];

// An element; text is never parsed.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
const color = name => getComputedStyle(root).getPropertyValue("--" + name).trim();

// Three digits and the unit that fits, as `units::duration`.
function three(value) {
  const size = Math.abs(value);
  const places = [[99.95, 0], [9.995, 1], [0.9995, 2], [0.09995, 3], [0.009995, 4]].find(([from]) => size >= from);
  return value.toFixed(places ? places[1] : 5);
}
function time(ns) {
  if (ns < 1e3) return Math.round(ns) + "\u00a0ns";
  if (ns < 999500) return three(ns / 1e3) + "\u00a0µs";
  if (ns < 999500000) return three(ns / 1e6) + "\u00a0ms";
  if (ns < 999500000000) return three(ns / 1e9) + "\u00a0s";
  return ns < 7.2e12 ? three(ns / 60e9) + "\u00a0min" : three(ns / 3600e9) + "\u00a0h";
}
const count = value => value >= 1e6 ? three(value / (value >= 999500000 ? 1e9 : 1e6)) + (value >= 999500000 ? "\u00a0G" : "\u00a0M") : value.toLocaleString("en");
const percent = ratio => (ratio ? three(Math.max(ratio, 0.00001) * 100) : "0") + "\u00a0%";

// Varints, compressed, in base64. Returns what gives one number after the other.
async function unpack(text) {
  const raw = Uint8Array.from(atob(text), character => character.charCodeAt(0));
  const plain = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(plain).arrayBuffer());
  let at = 0;
  const next = () => {
    let number = 0, factor = 1, byte;
    do {
      byte = bytes[at++];
      number += (byte & 127) * factor;
      factor *= 128;
    } while (byte > 127);
    return number;
  };
  const column = (length, into = Float64Array) => {
    const values = new into(length);
    for (let i = 0; i < length; i++) values[i] = next();
    return values;
  };
  // Starts are stored as differences.
  const starts = length => {
    const values = column(length);
    for (let i = 1; i < length; i++) values[i] += values[i - 1];
    return values;
  };
  return { next, column, starts, more: () => at < bytes.length };
}

// A canvas of this height, ready to draw on in pixels of the page.
function paper(canvas, height) {
  const scale = window.devicePixelRatio || 1, width = Math.max(1, canvas.clientWidth);
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.font = "11px system-ui, sans-serif";
  return [context, width];
}

// Round numbers between two, about `most` of them.
function ticks(low, high, most) {
  const least = (high - low) / Math.max(2, most), unit = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map(factor => factor * unit).find(step => step >= least);
  const all = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) all.push(at);
  return [all, step];
}
// A time on an axis whose ticks are this far apart.
function axisTime(ns, step) {
  if (ns === 0) return "0";
  const [unit, name] = step >= 60e9 ? [60e9, "min"] : step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : [1e3, "µs"];
  const places = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
  return (ns / unit).toFixed(places) + "\u00a0" + name;
}

const tip = document.getElementById("tip");
function showTip(text, x, y) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.min(y + 16, innerHeight - tip.offsetHeight - 4) + "px";
}

const setting = name => (location.hash.match(new RegExp("[#&]" + name + "=([^&]*)")) || [])[1];
function setTheme(theme) {
  root.dataset.theme = theme;
  for (const repaint of repaints) repaint();
}
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
prefersDark.addEventListener("change", event => setTheme(event.matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
addEventListener("resize", () => { for (const repaint of repaints) repaint(); });
addEventListener("beforeprint", () => { for (const repaint of repaints) repaint(); });

for (const code of document.querySelectorAll(".code")) {
  const text = code.querySelector("pre");
  code.append(make("button", {
    type: "button",
    async onclick() {
      let copied = true;
      try {
        await navigator.clipboard.writeText(text.textContent);
      } catch {
        // Files have no clipboard in some browsers: select it instead.
        getSelection().selectAllChildren(text);
        copied = document.execCommand("copy");
      }
      this.textContent = copied ? "Copied" : "Selected";
      setTimeout(() => { this.textContent = "Copy"; }, 2000);
    },
  }, "Copy"));
}

for (const table of document.querySelectorAll("table[data-sort]")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const sort = () => {
      const ascending = head.getAttribute("aria-sort") === "descending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const key = row => {
        const cell = row.cells[column];
        return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
      };
      const order = (one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : 0) * (ascending ? 1 : -1);
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort(order));
    };
    head.replaceChildren(make("button", { type: "button", onclick: sort }, head.textContent));
  });
}
