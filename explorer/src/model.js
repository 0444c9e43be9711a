// What the views ask of the page's data: the tree after each step, points of windows, pairs of dependences.

export const KINDS = ["flow", "anti", "output", "reduction"];

const APART = 32; // steps between trees that are kept

export function model(data) {
  // The rows of the tree after a step. Some are kept: a schedule of 500 statements has thousands of steps and of rows.
  const kept = [[]];
  let shown = [-1, []];
  const spliced = ([k, tree], step) => {
    let rows = tree;
    for (k += 1; k <= step; k++) {
      const [at, removed, put] = data.steps[k].splice;
      rows = rows.slice(0, at).concat(put, rows.slice(at + removed));
      if (k % APART === APART - 1) kept[(k + 1) / APART] ??= rows;
    }
    return rows;
  };
  const tree = (step) => {
    const place = Math.min(Math.floor((step + 1) / APART), kept.length - 1);
    const from = shown[0] <= step && shown[0] >= place * APART - 1 ? shown : [place * APART - 1, kept[place]];
    shown = [step, spliced(from, step)];
    return shown[1];
  };
  // The characters of each row of trees.
  const widths = data.rows.map(([depth, , text, detail]) => 2 * depth + text.length + detail.length);
  // What a search looks at of a statement, in lower case; made when it is first asked for.
  const searched = [];
  const searchable = (k) => {
    const s = data.statements[k];
    return (searched[k] ??= [s.name, s.text, s.domain, ...s.accesses.map((a) => a.relation)].join("\n").toLowerCase());
  };
  const places = new Map(data.statements.map((s, k) => [s.name, k]));
  const kernelOf = new Map();
  data.kernels.forEach((kernel, k) => kernel.statements.forEach((s) => kernelOf.set(s, k)));

  // The tiles of a statement after a step: those of the last step that changed them.
  const tiles = (step, statement) => {
    for (let k = step; k >= 0; k--) {
      const found = data.steps[k].tiles[statement];
      if (found !== undefined) return found === null ? null : data.tiles[found];
    }
    return null;
  };

  // The points of a window in lexicographic order; a full box is not written point by point.
  const known = new Map();
  const points = (window) => {
    if (!window) return [];
    if (!known.has(window)) {
      let found = window.points;
      if (!found) {
        found = [[]];
        for (const [low, high] of window.box) {
          found = found.flatMap((p) => Array.from({ length: high - low + 1 }, (_, v) => [...p, low + v]));
        }
      }
      known.set(window, found);
    }
    return known.get(window);
  };
  const windowOf = (statement) => {
    const at = data.statements[statement].window;
    return at === null ? null : data.windows[at];
  };
  const pairs = (dependence) => {
    const flat = data.pairs[dependence.pairs] ?? [];
    const a = data.statements[dependence.source].dims.length;
    const width = a + data.statements[dependence.sink].dims.length;
    const found = [];
    for (let k = 0; width && k + width <= flat.length; k += width) {
      found.push([flat.slice(k, k + a), flat.slice(k + a, k + width)]);
    }
    return found;
  };
  return { data, tree, widths, searchable, places, kernelOf, tiles, points, windowOf, pairs };
}

// A row of a tree as the view draws it, with the statements at or below it. Made for rows in view alone: a net of 500
// statements has some 5000, and the slider shows another tree in each frame.
export function line(model, rows, n) {
  const [depth, kind, text, detail, , loop, trips] = model.data.rows[rows[n]];
  const members = [];
  for (let k = n; k < rows.length; k++) {
    const [below, what, name] = model.data.rows[rows[k]];
    if (k > n && below <= depth) break;
    if (what === "statement" && model.places.has(name)) members.push(model.places.get(name));
  }
  return { depth, kind, text, detail, loop, trips, members };
}

export function seconds(value) {
  if (value === null || value === undefined) return "—";
  for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
    if (value >= scale) return `${Number((value / scale).toPrecision(3))} ${unit}`;
  }
  return `${Number((value / 1e-9).toPrecision(3))} ns`;
}

export function instance(model, statement, point) {
  return `${model.data.statements[statement].name}[${point.join(", ")}]`;
}
