// Time of pauses by stack, and heaps over time.
const SVG = "http://www.w3.org/2000/svg";
function shape(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

drawings.flame = async (box, run) => {
  const nodes = await stacksOf(run), packed = await unpack(run.flame);
  const whole = { ns: 0, count: 0, callees: new Map(), caller: null, frame: null };
  while (packed.more()) {
    const stack = packed.next(), ns = packed.next() + packed.next() + packed.next() + packed.next(), count = packed.next();
    let at = whole;
    at.ns += ns;
    at.count += count;
    for (const frame of stackOf(nodes, stack).reverse()) {
      const key = frame.name + "\0" + frame.path;
      if (!at.callees.has(key)) at.callees.set(key, { ns: 0, count: 0, callees: new Map(), caller: at, frame });
      at = at.callees.get(key);
      at.ns += ns;
      at.count += count;
    }
  }
  let shown = whole, wanted = "";
  const found = make("span", { "aria-live": "polite" }), area = make("div", { class: "flame" });
  const search = make("input", { type: "search", placeholder: "Function or file", "aria-label": "Find in the flame graph", oninput() { wanted = this.value.trim().toLowerCase(); draw(); } });
  const show = node => { shown = node; draw(); };
  box.append(make("div", { class: "tools" }, found, search, make("button", { type: "button", onclick: () => { search.value = wanted = ""; show(whole); } }, "Reset")), area);
  const name = node => node.frame ? `${node.frame.name} ${node.frame.place}` : "all pauses with a stack";
  const matches = node => wanted !== "" && node.frame !== null && (node.frame.name + " " + node.frame.path).toLowerCase().includes(wanted);
  // Of nested matches the outermost counts.
  const matched = node => matches(node) ? node.ns : [...node.callees.values()].reduce((sum, callee) => sum + matched(callee), 0);
  const hue = text => {
    let hash = 0;
    for (const character of text) hash = hash * 31 + character.codePointAt(0) | 0;
    return 12 + Math.abs(hash) % 44;
  };
  function draw() {
    const width = Math.max(50, area.clientWidth), row = 19, all = [];
    const lay = (node, left, wide, depth) => {
      all.push([node, left, wide, depth]);
      let at = left;
      for (const callee of [...node.callees.values()].sort((one, other) => other.ns - one.ns)) {
        const part = node.ns ? wide * callee.ns / node.ns : 0;
        if (part > 1) lay(callee, at, part, depth + 1);
        at += part;
      }
    };
    lay(shown, 0, width, 0);
    let depth = 0;
    for (const [, , , level] of all) depth = Math.max(depth, level + 1);
    const picture = shape("svg", { viewBox: `0 0 ${width} ${depth * row}`, height: depth * row, role: "group", "aria-label": "Flame graph: time of pauses by Python stack" });
    const dark = root.dataset.theme === "dark";
    for (const [node, left, wide, level] of all) {
      const text = name(node), top = (depth - 1 - level) * row, hit = matches(node);
      const about = `${text}\n${time(node.ns)}, ${percent(whole.ns ? node.ns / whole.ns : 0)} of it, ${count(node.count)} pauses${node.frame ? "\n" + node.frame.path : ""}`;
      const box = shape("rect", { x: left, y: top, width: wide, height: row, rx: 2, fill: node.frame ? `hsl(${hue(node.frame.name)} ${dark ? 62 : 78}% ${dark ? 62 : 70}%)` : "" });
      if (!node.frame) box.setAttribute("class", "all");
      const title = shape("title", {});
      title.textContent = about;
      box.append(title);
      const group = shape("g", { class: hit ? "found" : wanted ? "faint" : "", role: "button", tabindex: wide > 40 ? 0 : -1, "aria-label": about }, box);
      const go = () => show(node === shown && node.caller ? node.caller : node);
      group.addEventListener("click", go);
      group.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); go(); } });
      const room = Math.floor((wide - 8) / 6.7);
      if (room > 3) {
        const letters = shape("text", { x: left + 5, y: top + 13.5 });
        letters.textContent = text.length > room ? text.slice(0, room - 1) + "…" : text;
        group.append(letters);
      }
      picture.append(group);
    }
    area.replaceChildren(picture);
    found.textContent = wanted ? `${percent(whole.ns ? matched(whole) / whole.ns : 0)} of the time is in what matches` : shown === whole ? `${time(whole.ns)} in ${count(whole.count)} pauses; select a frame to zoom` : `${time(shown.ns)} in ${name(shown)}`;
  }
  repaints.push(draw);
  draw();
  if (setting("find")) { search.value = decodeURIComponent(setting("find")); search.dispatchEvent(new Event("input")); }
};

// Lines over time: of each its name and points, of time, value and radius; a legend, a label for who cannot see
// them, how a value is written, and what a point says.
function linesOverTime(box, lines, label, written, told) {
  const canvas = make("canvas", { role: "img", "aria-label": label });
  const legend = make("div", { class: "legend" }), inks = ["accent", "g2", "g0", "g1", "g3", "dim"];
  lines.forEach((line, at) => legend.append(make("span", {}, make("i", { class: "sw", style: `background:var(--${inks[at]})` }), line.name)));
  box.append(canvas, legend);
  let top = 1, end = 1, start = Infinity;
  for (const line of lines) for (const point of line.points) [top, end, start] = [Math.max(top, point.value), Math.max(end, point.at), Math.min(start, point.at)];
  const height = 190, base = height - 22;
  const places = width => lines.flatMap((line, which) => line.points.map(point =>
    ({ ...point, which, x: 8 + (point.at - start) / Math.max(1, end - start) * (width - 16), y: base - point.value / top * (base - 18) })));
  function draw() {
    const [context, width] = paper(canvas, height), [values] = ticks(0, top, 4), all = places(width);
    for (const value of values) {
      const y = Math.round(base - value / top * (base - 18));
      context.fillStyle = color("line");
      context.fillRect(0, y, width, 1);
      context.fillStyle = color("dim");
      context.fillText(written(value), 2, y - 3);
    }
    const [at, step] = ticks(start, end, width / 110);
    for (const tick of at) context.fillText(axisTime(tick, step), 8 + (tick - start) / Math.max(1, end - start) * (width - 16), height - 6);
    lines.forEach((_, which) => {
      const own = all.filter(point => point.which === which);
      context.strokeStyle = context.fillStyle = color(inks[which]);
      context.lineWidth = 1.5;
      context.beginPath();
      own.forEach((point, i) => i ? context.lineTo(point.x, point.y) : context.moveTo(point.x, point.y));
      context.stroke();
      for (const point of own) { context.beginPath(); context.arc(point.x, point.y, point.r, 0, 7); context.fill(); }
    });
  }
  canvas.addEventListener("pointermove", event => {
    const box = canvas.getBoundingClientRect(), [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const away = point => Math.abs(point.x - x) * 4 + Math.abs(point.y - y);
    const near = places(canvas.clientWidth).sort((one, other) => away(one) - away(other))[0];
    showTip(near ? `${told(near)}, ${time(near.at)} after the start` : "", event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", () => showTip(""));
  repaints.push(draw);
  draw();
}

// Objects that full collections went through, by process.
drawings.heap = async (box, run) => {
  let longest = 1;
  for (const heap of run.heaps) for (const [, , ns] of heap.points) longest = Math.max(longest, ns);
  const several = run.heaps.length > 1 || run.processes.length > 1;
  const lines = run.heaps.map(heap => ({
    name: several ? heap.name : "objects; the larger a point, the longer its collection",
    points: heap.points.map(([at, value, ns]) => ({ at, value, ns, r: 2 + 4 * Math.sqrt(ns / longest) })),
  }));
  linesOverTime(box, lines, "Objects that full collections went through, over time", count, point => `${count(point.value)} objects, ${time(point.ns)}`);
};

// Memory of processes, in MiB.
drawings.memory = async (box, run) => {
  const lines = run.memories.map(memory => ({ name: memory.name, points: memory.points.map(([at, value]) => ({ at, value, r: 1.5 })) }));
  const size = value => `${Number(value.toPrecision(3)).toLocaleString("en")}\u00a0MiB`;
  linesOverTime(box, lines, "Memory over time", size, point => `${run.memories[point.which].name}: ${size(point.value)}`);
};
