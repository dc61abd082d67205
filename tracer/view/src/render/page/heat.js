// Steps of all ranks: a row per rank, a column per step.
drawings.heat = async (box, run) => {
  const heat = run.heat, columns = heat.columns.length, rows = heat.rows.length;
  const figures = [];
  for (const [name, packed] of heat.figures) {
    const values = await unpack(packed);
    figures.push({ name, values: values.column(columns * rows) });
  }
  const stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const shade = part => {
    const at = Math.max(0, Math.min(1, part)) * (stops.length - 1), n = Math.min(stops.length - 2, Math.floor(at));
    return "rgb(" + stops[n].map((low, i) => Math.round(low + (stops[n + 1][i] - low) * (at - n))) + ")";
  };
  let figure = figures[0], most = false, order = [], at = [0, 0];
  const choice = make("select", { "aria-label": "What the color shows", onchange() { figure = figures[this.value]; draw(); } });
  choice.append(...figures.map(({ name }, which) => new Option(name, which)));
  const sorting = make("select", { "aria-label": "Order of the rows", onchange() { most = this.value === "most"; draw(); } }, new Option("by rank", "rank"), new Option("the most first", "most"));
  const map = make("canvas", { class: "choose", tabindex: 0, role: "application", "aria-label": "Steps by rank. Arrow keys go from cell to cell." });
  const [low, high] = [make("span"), make("span")], scale = make("canvas", { style: "width:160px", role: "img", "aria-label": "Colors, from the least to the most" });
  const detail = make("div", { class: "detail", "aria-live": "polite" }, "Point at a cell.");
  box.append(make("p", {}, heat.about), make("div", { class: "tools" }, choice, sorting), map, make("div", { class: "legend" }, low, scale, high, make("span", {}, "gray: no step")), detail);
  const known = value => value ? time((value - 1) * 1000) : "unknown";
  function draw() {
    const tall = Math.max(1, Math.min(24, Math.floor(420 / rows))), height = rows * tall, values = figure.values;
    const sum = row => {
      let all = 0, n = 0;
      for (let column = 0; column < columns; column++) if (values[row * columns + column]) { all += values[row * columns + column]; n++; }
      return n ? all / n : -1;
    };
    order = heat.rows.map((_, row) => row);
    if (most) { const sums = order.map(sum); order.sort((one, other) => sums[other] - sums[one] || one - other); }
    const sorted = values.filter(value => value).sort(), least = sorted.length ? sorted[Math.floor((sorted.length - 1) * .01)] : 0, top = sorted.length ? sorted[Math.floor((sorted.length - 1) * .995)] : 0;
    const [context, width] = paper(map, height + 16), wide = width / columns;
    order.forEach((row, y) => {
      for (let column = 0; column < columns; column++) {
        const value = values[row * columns + column];
        context.fillStyle = value ? shade(top > least ? (value - least) / (top - least) : 0) : color("line");
        context.fillRect(column * wide, y * tall, Math.max(wide, .5) + .3, tall);
      }
    });
    context.fillStyle = color("dim");
    context.fillText("step " + heat.columns[0], 0, height + 12);
    const last = heat.columns[columns - 1];
    if (columns > 1) context.fillText(last, width - context.measureText(last).width, height + 12);
    const [colors] = paper(scale, 12);
    for (let place = 0; place < 160; place++) { colors.fillStyle = shade(place / 159); colors.fillRect(place, 0, 1, 12); }
    low.textContent = known(least) + " or less";
    high.textContent = known(top) + " or more";
    map.tall = tall;
  }
  function describe(y, column) {
    const row = order[y];
    if (row === undefined || !(column >= 0 && column < columns)) return;
    at = [y, column];
    const [step, ...others] = figures.map(({ name, values }) => [name, values[row * columns + column]]), up = heat.several ? "at most " : "";
    const parts = others.filter(([, value], which) => which === 0 || value > 1).map(([name, value]) => `${name.replace(/^[TG](?=ime)/, letter => letter.toLowerCase())} ${up}${known(value)}`);
    detail.textContent = `${heat.rows[row]}, step ${heat.columns[column]}: ` + (step[1] ? `${up}${known(step[1])}; ${parts.join("; ")}` : "none");
  }
  map.addEventListener("pointermove", event => {
    const box = map.getBoundingClientRect();
    describe(Math.floor((event.clientY - box.top) / map.tall), Math.floor((event.clientX - box.left) / box.width * columns));
  });
  map.addEventListener("keydown", event => {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!by) return;
    event.preventDefault();
    describe(at[0] + by[0], at[1] + by[1]);
  });
  repaints.push(draw);
  draw();
};
