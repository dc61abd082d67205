// Memory by layer: tiles as large as what the layers of a step hold, in the colors of its kinds, and these over time.
const KINDS = [["weights", "accent"], ["saved for backward", "g2"], ["gradients", "g0"], ["optimizer state", "g1"], ["buffers", "g3"]];
const mebibytes = bytes => `${Number((bytes / 1048576).toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 })}\u00a0MiB`;

// Splits an area between items, the largest first, by their bytes; `put` gets each with its part.
function split(items, [x, y, width, height], put) {
  if (items.length < 2) return items.forEach(item => put(item, [x, y, width, height]));
  const whole = items.reduce((sum, item) => sum + item.bytes, 0);
  let part = items[0].bytes, at = 1;
  while (at < items.length - 1 && part + items[at].bytes / 2 < whole / 2) part += items[at++].bytes;
  const ratio = part / whole, wide = width > height;
  split(items.slice(0, at), wide ? [x, y, width * ratio, height] : [x, y, width, height * ratio], put);
  split(items.slice(at), wide ? [x + width * ratio, y, width * (1 - ratio), height] : [x, y + height * ratio, width, height * (1 - ratio)], put);
}

drawings.layers = async (box, run) => {
  for (const one of run.layers) {
    const items = one.layers.map(([name, type, kinds]) => ({ name, type, kinds, bytes: kinds.reduce((sum, size) => sum + size, 0) }));
    const whole = items.reduce((sum, item) => sum + item.bytes, 0), area = make("div", { class: "tiles" });
    const about = item => `${item.name} ${item.type}\n${mebibytes(item.bytes)}, ${percent(item.bytes / whole)}\n` +
      item.kinds.map((size, which) => size ? `${KINDS[which][0]} ${mebibytes(size)}` : "").filter(Boolean).join("\n");
    const draw = () => {
      const width = Math.max(50, area.clientWidth), height = 260;
      const picture = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `Memory of ${one.name} by layer in step ${one.step}; the table below has the figures` });
      split(items, [0, 0, width, height], (item, [x, y, wide, high]) => {
        const title = shape("title", {}), group = shape("g", {}, title);
        title.textContent = about(item);
        const parts = item.kinds.map((bytes, which) => ({ bytes, which })).filter(({ bytes }) => bytes);
        split(parts, [x, y, wide, high], ({ which }, [left, top, across, down]) => group.append(shape("rect", { x: left, y: top, width: across, height: down, fill: `var(--${KINDS[which][1]})` })));
        group.append(shape("rect", { class: "edge", x, y, width: wide, height: high }));
        const room = Math.floor((wide - 8) / 6.7);
        if (room > 3 && high > 17) {
          const letters = shape("text", { x: x + 5, y: y + 14 });
          letters.textContent = item.name.length > room ? "…" + item.name.slice(1 - room) : item.name;
          group.append(letters);
        }
        picture.append(group);
      });
      area.replaceChildren(picture);
    };
    if (run.layers.length > 1) box.append(make("h3", {}, one.name));
    box.append(make("p", { class: "note" }, `Step ${count(one.step)}, as its backward pass began.`), area);
    repaints.push(draw);
    draw();
    if (one.steps.length > 1) {
      // What is unknown has no point.
      const known = which => one.steps.filter(([, , kinds]) => kinds[which] !== null).map(([at, step, kinds]) => ({ at, step, value: kinds[which], r: 1.5 }));
      const lines = KINDS.map(([name], which) => ({ name, points: known(which) })).map(({ name, points }) => ({ name: points.length ? name : `${name} (unknown)`, points }));
      linesOverTime(box, lines, "Memory by kind in measured steps, over time", mebibytes, point => `step ${count(point.step)}: ${KINDS[point.which][0]} ${mebibytes(point.value)}`);
    } else {
      box.append(make("div", { class: "legend" }, ...KINDS.map(([name, ink]) => make("span", {}, make("i", { class: "sw", style: `background:var(--${ink})` }), name))));
    }
  }
};
