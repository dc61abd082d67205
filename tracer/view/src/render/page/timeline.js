// Steps and pauses over time: all of it above, a part of it below, one pause with its stack.
const generations = ["Generation 0", "Generation 1", "Generation 2", "Unknown generation"];
const reasons = ["", "automatic", "gc.collect()", "at shutdown"];
// From this length on n and p step from pause to pause.
const LONG_NS = 1e6;
// The shortest part that can be chosen.
const SHORTEST_NS = 2e5;

// Frames and stacks of a run, once.
async function stacksOf(run) {
  run.unpacked = run.unpacked || (async () => {
    const packed = await unpack(run.frames), frames = [];
    while (packed.more()) {
      const [file, line, name] = [packed.next(), packed.next(), packed.next()];
      const path = run.strings[file], place = path.split("/").pop() + (line ? ":" + (line - 1) : "");
      frames.push({ name: run.strings[name], place, path: path + (line ? ":" + (line - 1) : "") });
    }
    const tree = await unpack(run.stacks), nodes = [null];
    while (tree.more()) nodes.push({ caller: tree.next(), frame: frames[tree.next()] });
    return nodes;
  })();
  return run.unpacked;
}
function stackOf(nodes, node) {
  const frames = [];
  for (; node; node = nodes[node].caller) frames.push(nodes[node].frame);
  return frames;
}

async function pausesOf(run) {
  const packed = await unpack(run.pauses), n = packed.more() ? packed.next() : 0;
  const start = packed.starts(n).map(us => us * 1000), length = packed.column(n), kinds = packed.column(n), freed = packed.column(n);
  const process = run.processes.length > 1 ? packed.column(n, Uint32Array) : new Uint32Array(n);
  const generation = new Uint8Array(n), reason = new Uint8Array(n), stack = new Uint32Array(n);
  let longest = -1, top = 0;
  const used = [false, false, false, false];
  for (let i = 0; i < n; i++) {
    generation[i] = kinds[i] % 4;
    reason[i] = Math.floor(kinds[i] / 4) % 4;
    stack[i] = Math.floor(kinds[i] / 16);
    used[generation[i]] = true;
    if (length[i] > top) [longest, top] = [i, length[i]];
  }
  return { n, start, length, generation, reason, stack, freed, process, longest, top, used };
}
async function stepsOf(steps) {
  const packed = await unpack(steps.packed), n = packed.next();
  return { what: steps.what, name: steps.name, process: steps.process, n, start: packed.starts(n), length: packed.column(n), gc: packed.column(n) };
}

drawings.timeline = async (box, run) => {
  const nodes = await stacksOf(run), pauses = await pausesOf(run);
  const steps = await Promise.all(run.steps.map(stepsOf));
  const total = Math.max(1, run.duration), shown = [true, true, true, true];
  let low = 0, high = total, chosen = -1, under = -1, only = -1;
  const stepsShown = () => steps.find(row => only < 0 || row.process === only);
  const isShown = i => shown[pauses.generation[i]] && (only < 0 || pauses.process[i] === only);

  const span = make("span"), detail = make("div", { class: "detail", "aria-live": "polite" }, "Select a pause to see its Python stack.");
  const over = make("canvas", { class: "choose over", role: "img", "aria-label": "Share of the time in collections, over the whole run. Drag to select a part." });
  const view = make("canvas", {
    class: "choose", tabindex: 0, role: "application",
    "aria-label": "Pauses of the selected part by their length. Arrow keys move, plus and minus zoom, n and p go to the next and previous pause of 1 ms or longer, 0 shows all.",
  });
  const button = (text, label, onclick) => make("button", { type: "button", "aria-label": label, onclick }, text);
  const tools = make("div", { class: "tools" }, span);
  if (run.processes.length > 1) {
    const choice = make("select", { "aria-label": "Process", onchange() { only = Number(this.value); draw(); } });
    const names = [...run.processes.entries()].sort((one, other) => one[1].localeCompare(other[1], "en", { numeric: true }));
    choice.append(new Option("all processes", -1), ...names.map(([at, name]) => new Option(name, at)));
    tools.append(choice);
  }
  if (pauses.n) tools.append(button("Longest pause", "Longest pause", showLongest));
  tools.append(button("+", "Zoom in", () => zoom(low + (high - low) / 4, high - (high - low) / 4)),
    button("−", "Zoom out", () => zoom(low - (high - low) / 2, high + (high - low) / 2)), button("All", "Show the whole run", () => zoom(0, total)));
  const legend = make("div", { class: "legend" });
  generations.forEach((name, generation) => {
    if (!pauses.used[generation]) return;
    const swatch = make("i", { class: "sw", style: `background:var(--g${generation})` });
    legend.append(make("label", {}, make("input", { type: "checkbox", checked: true, "data-generation": generation, onchange() { shown[generation] = this.checked; draw(); } }), swatch, name));
  });
  legend.append(make("span", {}, (pauses.n ? "Height: length, logarithmic. " : "") + "Ctrl + wheel zooms."));
  box.append(tools, ...(pauses.n ? [over] : []), view, legend);
  if (pauses.n) box.append(detail);

  // The first pause that starts at or after a time.
  const from = at => {
    let least = 0, most = pauses.n;
    while (least < most) {
      const middle = (least + most) >> 1;
      if (pauses.start[middle] < at) least = middle + 1; else most = middle;
    }
    return least;
  };
  // Pauses may have begun before what is shown: as many more as a screen of the longest.
  const firstIn = at => Math.max(0, from(at - pauses.top));
  function drawOver() {
    if (!pauses.n) return;
    const height = 64, [context, width] = paper(over, height), n = Math.max(1, Math.floor(width / 3));
    const sums = generations.map(() => new Float64Array(n)), each = total / n;
    const add = (generation, start, length) => {
      for (let at = start, end = Math.min(total, start + length); at < end;) {
        const bin = Math.min(n - 1, Math.floor(at / each)), until = bin === n - 1 ? end : Math.min(end, (bin + 1) * each);
        sums[generation][bin] += until - at;
        at = until > at ? until : end;
      }
    };
    for (let i = 0; i < pauses.n; i++) if (isShown(i)) add(pauses.generation[i], pauses.start[i], pauses.length[i]);
    if (only < 0) {
      for (const [at, , ...times] of run.notListed) times.forEach((ns, generation) => { if (shown[generation]) sums[generation][Math.min(n - 1, Math.floor(at / each))] += ns; });
    }
    const processes = only < 0 ? Math.max(1, run.processes.length) : 1;
    context.fillStyle = color("soft");
    context.fillRect(0, 0, width, height);
    for (let bin = 0; bin < n; bin++) {
      let y = height;
      generations.forEach((_, generation) => {
        const tall = sums[generation][bin] / each / processes * height;
        if (tall <= 0) return;
        context.fillStyle = color("g" + generation);
        context.fillRect(bin * width / n, y - tall, width / n - .6, tall);
        y -= tall;
      });
    }
    for (const [name, start, end] of run.phases) {
      const x = start / total * width;
      context.fillStyle = color("dim");
      context.fillRect(x, 0, 1, height);
      if ((end - start) / total * width > context.measureText(name).width + 8) label(context, name, x + 4, 12);
    }
    if (low <= 0 && high >= total) return;
    context.fillStyle = color("choice");
    context.fillRect(low / total * width, 0, (high - low) / total * width, height);
    context.strokeStyle = color("accent");
    context.lineWidth = 1.5;
    context.strokeRect(low / total * width + .75, .75, Math.max(2, (high - low) / total * width - 1.5), height - 1.5);
  }
  function label(context, text, x, y) {
    context.lineWidth = 3;
    context.strokeStyle = color("card");
    context.fillStyle = color("dim");
    context.strokeText(text, x, y);
    context.fillText(text, x, y);
  }
  const least = 3.5, most = Math.max(5, Math.log10(pauses.top || 1));
  // Of the view: what is above the pauses are the steps.
  const lane = steps.length ? 74 : 0, height = (pauses.n ? 230 : 24) + lane, base = height - 22, ceiling = lane + 10;
  const x = (at, width) => (at - low) / (high - low) * width;
  const y = ns => base - Math.max(0, Math.log10(Math.max(ns, 1)) - least) / (most - least) * (base - ceiling);
  function drawSteps(context, width) {
    const row = stepsShown(), floor = lane - 12;
    if (!row) return label(context, `no ${steps[0].what} of this process`, 2, floor);
    let top = 0;
    for (let i = 0; i < row.n; i++) if (row.start[i] < high && row.start[i] + row.length[i] > low && row.length[i] > top) top = row.length[i];
    const tall = ns => top ? ns / top * (floor - 14) : 0;
    // The longest step of each pixel.
    const longest = new Map();
    for (let i = 0; i < row.n; i++) {
      const end = row.start[i] + row.length[i];
      if (row.start[i] > high || end < low) continue;
      const left = Math.round(x(row.start[i], width));
      if (!longest.has(left) || row.length[longest.get(left)] < row.length[i]) longest.set(left, i);
    }
    for (const [left, i] of longest) {
      const wide = Math.max(1, x(row.start[i] + row.length[i], width) - left - (longest.size < width / 4 ? 1 : 0));
      context.fillStyle = color("accent");
      context.globalAlpha = .45;
      context.fillRect(left, floor - tall(row.length[i]), wide, tall(row.length[i]));
      context.globalAlpha = 1;
      if (row.gc[i] > 1) {
        context.fillStyle = color("g2");
        context.fillRect(left, floor - tall(row.gc[i] - 1), wide, tall(row.gc[i] - 1));
      }
    }
    label(context, `${row.what}${steps.length > 1 ? " of " + row.name : ""}, up to ${time(top)}; red: in collections`, 2, 10);
  }
  function drawView() {
    const [context, width] = paper(view, height);
    context.fillStyle = color("line");
    if (pauses.n) for (let power = Math.ceil(least); power <= most; power++) context.fillRect(0, Math.round(y(10 ** power)), width, 1);
    const [at, step] = ticks(low, high, width / 110);
    for (const tick of at) {
      context.fillStyle = color("line");
      context.fillRect(Math.round(x(tick, width)), base, 1, 5);
      context.fillStyle = color("dim");
      context.fillText(axisTime(tick, step), x(tick, width) + 3, height - 7);
    }
    context.fillStyle = color("line");
    context.fillRect(0, base, width, 1);
    if (lane) drawSteps(context, width);
    const first = firstIn(low), end = from(high);
    generations.forEach((_, generation) => {
      if (!shown[generation]) return;
      context.fillStyle = color("g" + generation);
      const longest = new Map();
      for (let i = first; i < end; i++) {
        if (pauses.generation[i] !== generation || !isShown(i) || pauses.start[i] + pauses.length[i] < low) continue;
        const left = x(pauses.start[i], width), right = x(pauses.start[i] + pauses.length[i], width);
        if (right - left >= 1.2) {
          context.globalAlpha = .9;
          context.fillRect(left, y(pauses.length[i]), right - left, base - y(pauses.length[i]));
          continue;
        }
        const pixel = Math.round(left);
        if (!longest.has(pixel) || pauses.length[longest.get(pixel)] < pauses.length[i]) longest.set(pixel, i);
      }
      // Where they are dense a faint stem with a head, else short ones are a solid block.
      const stem = longest.size > width / 6 ? .13 : .6;
      for (const [pixel, i] of longest) {
        const head = y(pauses.length[i]);
        context.globalAlpha = stem;
        context.fillRect(pixel, head, 1.2, base - head);
        context.globalAlpha = .95;
        context.fillRect(pixel - .4, head, 2, 2);
      }
      context.globalAlpha = 1;
    });
    if (pauses.n) for (let power = Math.ceil(least); power <= most; power++) label(context, time(10 ** power).replace(/\.0+/, ""), 2, y(10 ** power) - 3);
    for (const [i, name] of [[under, "dim"], [chosen, "accent"]]) {
      if (i < 0) continue;
      const left = x(pauses.start[i], width), right = x(pauses.start[i] + pauses.length[i], width);
      context.strokeStyle = color(name);
      context.lineWidth = 2;
      context.strokeRect(left - 1.5, y(pauses.length[i]) - 1.5, Math.max(3, right - left + 3), base - y(pauses.length[i]) + 3);
    }
    span.textContent = `${low ? time(low) : 0} – ${time(high)} after the start`;
  }
  function draw() { drawOver(); drawView(); }
  repaints.push(draw);
  function zoom(newLow, newHigh) {
    const wide = Math.min(total, Math.max(SHORTEST_NS, newHigh - newLow));
    low = Math.max(0, Math.min(newLow, total - wide));
    high = Math.min(total, low + wide);
    draw();
  }
  // The longest pause near a place of the view.
  function near(place) {
    const width = view.clientWidth, at = low + place / width * (high - low), around = (high - low) / width * 5;
    let best = -1;
    for (let i = firstIn(at - around), end = from(at + around); i < end; i++) {
      if (isShown(i) && pauses.start[i] + pauses.length[i] > at - around && (best < 0 || pauses.length[i] > pauses.length[best])) best = i;
    }
    return best;
  }
  const place = i => stackOf(nodes, pauses.stack[i])[0];
  function describe(i) {
    chosen = i;
    const kind = `${generations[pauses.generation[i]]}, ${time(pauses.length[i])}`;
    const facts = [`at ${time(pauses.start[i])}`, reasons[pauses.reason[i]], run.processes.length > 1 ? run.processes[pauses.process[i]] : "",
      pauses.freed[i] ? `freed ${count(pauses.freed[i] - 1)} objects` : ""];
    detail.replaceChildren(make("b", {}, kind), " " + facts.filter(fact => fact).join(", "));
    const frames = stackOf(nodes, pauses.stack[i]), list = make("ol", { class: "mono" });
    for (const frame of frames.slice(0, 12)) list.append(make("li", { title: frame.path }, `${frame.place}  ${frame.name}`));
    if (frames.length > 12) list.append(make("li", {}, `and ${frames.length - 12} outer frames`));
    detail.append(frames.length ? list : ", no Python line");
    draw();
  }
  function showLongest() {
    let best = -1;
    for (let i = 0; i < pauses.n; i++) if (isShown(i) && (best < 0 || pauses.length[i] > pauses.length[best])) best = i;
    if (best < 0) return;
    zoom(pauses.start[best] - pauses.length[best] * 2, pauses.start[best] + pauses.length[best] * 3);
    describe(best);
  }
  const within = (event, canvas) => event.clientX - canvas.getBoundingClientRect().left;
  view.addEventListener("pointermove", event => {
    const i = near(within(event, view));
    if (i !== under) { under = i; drawView(); }
    const frame = i < 0 ? null : place(i);
    showTip(i < 0 ? "" : `${generations[pauses.generation[i]]}, ${time(pauses.length[i])}${frame ? ": " + frame.place + " in " + frame.name : ""}`, event.clientX, event.clientY);
  });
  view.addEventListener("pointerleave", () => { showTip(""); under = -1; drawView(); });
  view.addEventListener("click", event => { const i = near(within(event, view)); if (i >= 0) describe(i); });
  view.addEventListener("wheel", event => {
    const zooms = event.ctrlKey || event.metaKey, moves = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!zooms && !moves) return;
    event.preventDefault();
    const part = within(event, view) / view.clientWidth, at = low + part * (high - low);
    if (zooms) {
      const factor = Math.exp(event.deltaY * .01);
      zoom(at - (at - low) * factor, at + (high - at) * factor);
    } else {
      const by = (event.deltaX || event.deltaY) / view.clientWidth * (high - low);
      zoom(low + by, high + by);
    }
  }, { passive: false });
  let dragged = null;
  const timeAt = place => place / over.clientWidth * total;
  over.addEventListener("pointerdown", event => { over.setPointerCapture(event.pointerId); dragged = within(event, over); });
  over.addEventListener("pointermove", event => {
    if (dragged === null || Math.abs(within(event, over) - dragged) < 4) return;
    zoom(timeAt(Math.min(dragged, within(event, over))), timeAt(Math.max(dragged, within(event, over))));
  });
  over.addEventListener("pointerup", event => {
    const at = timeAt(within(event, over)), half = high - low < total * .99 ? (high - low) / 2 : total / 20;
    if (dragged !== null && Math.abs(within(event, over) - dragged) < 4) zoom(at - half, at + half);
    dragged = null;
  });
  view.addEventListener("keydown", event => {
    const wide = high - low, moves = { ArrowLeft: [-.2, -.2], ArrowRight: [.2, .2], "+": [.2, -.2], "=": [.2, -.2], "-": [-.4, .4] }[event.key];
    if (moves) {
      event.preventDefault();
      zoom(low + moves[0] * wide, high + moves[1] * wide);
    } else if (event.key === "n" || event.key === "p") {
      const by = event.key === "n" ? 1 : -1;
      let i = chosen < 0 ? (by > 0 ? from(low) : from(high) - 1) : chosen + by;
      while (i >= 0 && i < pauses.n && !(isShown(i) && pauses.length[i] >= LONG_NS)) i += by;
      if (i < 0 || i >= pauses.n) return;
      if (pauses.start[i] < low || pauses.start[i] > high) zoom(pauses.start[i] - wide / 2, pauses.start[i] + wide / 2);
      describe(i);
    } else if (event.key === "0") zoom(0, total);
  });
  draw();
  const part = setting("zoom");
  if (part) zoom(...part.split("-").map(seconds => Number(seconds) * 1e9));
  if (setting("longest")) showLongest();
};
