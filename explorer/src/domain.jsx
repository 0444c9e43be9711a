import { scaleLinear } from "d3-scale";
import { useMemo, useState } from "preact/hooks";
import { dark, light } from "./light.js";
import { instance, KINDS } from "./model.js";

const CELL = 20;
const MARGIN = { left: 52, right: 16, top: 30, bottom: 34 };

const key = (statement, point) => `${statement}:${point.join(",")}`;

// The dimensions that are drawn, and where the others are held.
function plane(window, dims, chosen) {
  const axes = (chosen.axes ?? [...dims.keys()].slice(0, 2)).filter((d) => d < dims.length);
  const held = dims.map((_, d) => chosen.held?.[d] ?? window.box[d][0]);
  return { axes, held };
}

// The instances of one statement. Most steps leave its tiles as they were, and then nothing of it is drawn anew.
function Facet({ model, facet, step, at, move, say }) {
  const tiles = facet.own ? model.tiles(step, facet.statement) : null;
  const here = at?.statement === facet.statement ? at : null;
  return useMemo(() => instances(model, facet, tiles, here, move, say), [model, facet, tiles, here]);
}

function instances(model, facet, tiles, at, move, say) {
  const { statement, view, left } = facet;
  const about = model.data.statements[statement];
  const { axes } = view;
  const [x, y] = facet.scales;
  const shown = facet.points;
  const cells = tiles ? shown.map(([p, n]) => [p, tiles.of[n]]) : [];
  const first = new Map();
  for (const [p, n] of cells) if (!first.has(n)) first.set(n, p);
  const tileAt = new Map(cells.map(([p, n]) => [p.join(), n]));
  const edges = [];
  for (const [p, n] of cells) {
    const cx = x(p[axes[0]]);
    const cy = y(axes.length > 1 ? p[axes[1]] : 0);
    const near = (d, by) => {
      if (axes[d] === undefined) return undefined;
      const q = [...p];
      q[axes[d]] += by;
      return tileAt.get(q.join());
    };
    const h = CELL / 2;
    if (near(0, 1) !== n) edges.push(`M${cx + h} ${cy - h}v${CELL}`);
    if (near(0, -1) !== n) edges.push(`M${cx - h} ${cy - h}v${CELL}`);
    if (near(1, 1) !== n) edges.push(`M${cx - h} ${cy - h}h${CELL}`);
    if (near(1, -1) !== n) edges.push(`M${cx - h} ${cy + h}h${CELL}`);
  }
  const over = (p) => {
    light({ statements: [statement], point: key(statement, p) });
    const tile = tiles ? `, tile ${tiles.of[shown.find(([q]) => q === p)[1]]}` : "";
    say(`${instance(model, statement, p)}${tile}: ${about.text}`);
  };
  const press = (event) => {
    const by = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [1, 1], ArrowDown: [1, -1] }[event.key];
    if (!by || !shown.length) return;
    event.preventDefault();
    const now = at ? at.point : null;
    let next = shown[0][0];
    if (now && axes[by[0]] !== undefined) {
      const wanted = [...now];
      wanted[axes[by[0]]] += by[1];
      next = (shown.find(([q]) => q.join() === wanted.join()) ?? [now])[0];
    }
    move({ statement, point: next });
    over(next);
  };
  const heldText = about.dims.map((name, d) => (axes.includes(d) ? null : `${name} = ${view.held[d]}`)).filter(Boolean);
  return (
    <g
      transform={`translate(${left}, 0)`}
      tabindex={0}
      role="group"
      aria-label={`Instances of ${about.name}; arrow keys move between them`}
      onKeyDown={press}
      class="facet own"
      data-s={statement}
    >
      <text x={MARGIN.left} y={16} class="facet-title">
        {about.name}
        {heldText.length ? ` at ${heldText.join(", ")}` : ""}
      </text>
      {cells.map(([p, n]) => (
        <rect
          key={p.join()}
          class={`cell shade${tiles.tiles[n].reduce((sum, v, d) => sum + (Math.abs(v) % 2) * (d % 2 ? 1 : 2), 0) % 4}`}
          x={x(p[axes[0]]) - CELL / 2}
          y={y(axes.length > 1 ? p[axes[1]] : 0) - CELL / 2}
          width={CELL}
          height={CELL}
        />
      ))}
      <path class="tile-edge" d={edges.join("")} />
      {[...first].map(([n, p]) => (
        <text key={n} class="tile-number" x={x(p[axes[0]]) - 9} y={y(axes.length > 1 ? p[axes[1]] : 0) + 9}>
          {n}
        </text>
      ))}
      {shown.map(([p]) => (
        <circle
          key={p.join()}
          class={`point${at && at.point.join() === p.join() ? " chosen" : ""}`}
          data-point={key(statement, p)}
          cx={x(p[axes[0]] ?? 0)}
          cy={y(axes.length > 1 ? p[axes[1]] : 0)}
          r={3.5}
          onMouseEnter={() => over(p)}
          onMouseLeave={dark}
          onClick={() => move({ statement, point: p })}
        />
      ))}
    </g>
  );
}

// The axes of a facet. They are drawn above the arrows, which would cross them out.
function Axes({ model, facet }) {
  const { view, left } = facet;
  const { axes } = view;
  const [x, y] = facet.scales;
  const about = model.data.statements[facet.statement];
  const ticks = (scale) => scale.ticks(Math.min(8, Math.abs(scale.domain()[1] - scale.domain()[0]))).filter(Number.isInteger);
  return (
    <g class="axis" transform={`translate(${left}, 0)`} aria-hidden="true">
      {ticks(x).map((v) => (
        <text key={v} x={x(v)} y={facet.height - 18} text-anchor="middle">
          {v}
        </text>
      ))}
      <text x={(x.range()[0] + x.range()[1]) / 2} y={facet.height - 4} text-anchor="middle" class="axis-name">
        {about.dims[axes[0]] ?? ""}
      </text>
      {axes.length > 1 &&
        ticks(y).map((v) => (
          <text key={v} x={MARGIN.left - 16} y={y(v) + 4} text-anchor="end">
            {v}
          </text>
        ))}
      {axes.length > 1 && (
        <text x={10} y={(y.range()[0] + y.range()[1]) / 2 + 4} text-anchor="middle" class="axis-name">
          {about.dims[axes[1]]}
        </text>
      )}
    </g>
  );
}

function placed(model, wanted, views) {
  let left = 0;
  return wanted.map(({ statement, window, own, fixed }) => {
    const dims = model.data.statements[statement].dims;
    const view = plane(window, dims, fixed ?? views[statement] ?? {});
    const drawn = model
      .points(window)
      .map((p, n) => [p, n])
      .filter(([p]) => p.every((v, d) => view.axes.includes(d) || v === view.held[d]));
    const [a, b] = view.axes;
    const across = a === undefined ? [0, 0] : window.box[a];
    const up = b === undefined ? [0, 0] : window.box[b];
    const width = (across[1] - across[0] + 1) * CELL;
    const tall = (up[1] - up[0] + 1) * CELL;
    const height = tall + MARGIN.top + MARGIN.bottom;
    const x = scaleLinear([across[0], across[1] || across[0] + 1], [MARGIN.left + CELL / 2, MARGIN.left + CELL / 2 + (across[1] - across[0] || 1) * CELL]);
    if (across[0] === across[1]) x.domain([across[0], across[0] + 1]);
    const y = scaleLinear([up[0], up[0] + 1], [MARGIN.top + tall - CELL / 2, MARGIN.top + tall - CELL / 2 - CELL]);
    if (up[1] > up[0]) y.domain([up[0], up[1]]).range([MARGIN.top + tall - CELL / 2, MARGIN.top + CELL / 2]);
    const facet = { statement, window, own, view, points: drawn, scales: [x, y], left, height };
    const title = 8 * (model.data.statements[statement].name.length + 7 * (dims.length - 2 > 0 ? dims.length - 2 : 0) + 3);
    left += Math.max(width + MARGIN.left + MARGIN.right, title + MARGIN.left);
    facet.right = left;
    return facet;
  });
}

// Where an instance is drawn; null if its plane is another one.
function spot(facet, point) {
  const { axes, held } = facet.view;
  const inside = point.every((v, d) => (axes.includes(d) ? v >= facet.window.box[d][0] && v <= facet.window.box[d][1] : v === held[d]));
  if (!inside) return null;
  const [x, y] = facet.scales;
  return [facet.left + x(point[axes[0]] ?? 0), y(axes.length > 1 ? point[axes[1]] : 0)];
}

function arrow([ax, ay], [bx, by]) {
  const length = Math.hypot(bx - ax, by - ay);
  if (length < 1) return `M${ax - 3} ${ay - 3}c-14 -16 16 -18 6 -2`;
  const [ux, uy] = [(bx - ax) / length, (by - ay) / length];
  const bend = Math.min(26, length / 6);
  const [mx, my] = [(ax + bx) / 2 - uy * bend, (ay + by) / 2 + ux * bend];
  return `M${ax + ux * 4} ${ay + uy * 4}Q${mx} ${my} ${bx - ux * 5} ${by - uy * 5}`;
}

export function Domain({ model, step, statement, refusal, close, say }) {
  const [views, setViews] = useState({});
  const [kinds, setKinds] = useState(() => new Set(KINDS));
  const [neighbours, setNeighbours] = useState(true);
  const [at, move] = useState(null);
  const { data } = model;

  const wanted = useMemo(() => {
    if (refusal) {
      return [refusal.source, refusal.sink]
        .filter((end, k, ends) => end.window && (k === 0 || end.statement !== ends[0].statement || end.window !== ends[0].window))
        .map((end) => {
          const own = views[end.statement] ?? {};
          return { statement: end.statement, window: end.window, own: false, fixed: { axes: own.axes, held: own.held ?? end.point } };
        });
    }
    const found = [statement];
    if (neighbours) {
      for (const each of data.dependences) {
        for (const [one, other] of [[each.source, each.sink], [each.sink, each.source]]) {
          if (one === statement && !found.includes(other) && found.length < 4) found.push(other);
        }
      }
      found.sort((a, b) => a - b);
    }
    return found.map((s) => ({ statement: s, window: model.windowOf(s), own: true })).filter((w) => w.window);
  }, [statement, refusal, neighbours, views]);
  const facets = useMemo(() => placed(model, wanted, views), [wanted, views]);

  const arrows = useMemo(() => {
    if (refusal) return [];
    const found = [];
    for (const each of data.dependences) {
      if (!kinds.has(each.kind)) continue;
      const source = facets.find((f) => f.statement === each.source);
      const sink = facets.find((f) => f.statement === each.sink);
      if (!source || !sink || each.pairs === undefined) continue;
      for (const [a, b] of model.pairs(each)) {
        const from = spot(source, a);
        const to = spot(sink, b);
        if (from && to) found.push({ kind: each.kind, from: key(each.source, a), to: key(each.sink, b), d: arrow(from, to) });
      }
    }
    return found.slice(0, 1500);
  }, [facets, kinds, refusal]);

  const drawn = useMemo(
    () =>
      arrows.map((each, n) => (
        <path key={n} class={`arrow ${each.kind}`} d={each.d} data-from={each.from} data-to={each.to} marker-end={`url(#head-${each.kind})`} />)),
    [arrows],
  );
  const ends = refusal && facets.length
    ? [[refusal.source, facets[0]], [refusal.sink, facets[facets.length - 1]]].map(([end, facet]) => [end, spot(facet, end.point)])
    : [];
  const violating = ends.length && ends.every(([, place]) => place) ? arrow(ends[0][1], ends[1][1]) : null;

  const change = (s, window, what) => {
    const now = plane(window, data.statements[s].dims, (refusal ? wanted.find((w) => w.statement === s).fixed : views[s]) ?? {});
    setViews({ ...views, [s]: { ...now, ...what } });
  };
  const width = facets.length ? facets[facets.length - 1].right : 200;
  const height = Math.max(120, ...facets.map((f) => f.height));
  return (
    <>
      <div class="tools">
        {refusal ? (
          <button type="button" onClick={close}>
            back to dependences
          </button>
        ) : (
          <label>
            <input type="checkbox" checked={neighbours} onChange={(e) => setNeighbours(e.currentTarget.checked)} /> neighbours
          </label>
        )}
        {!refusal &&
          KINDS.map((kind) => (
            <label key={kind} class={`kind ${kind}`}>
              <input
                type="checkbox"
                checked={kinds.has(kind)}
                onChange={() => setKinds(new Set(KINDS.filter((k) => (k === kind) !== kinds.has(k))))}
              />
              <svg width="26" height="8" aria-hidden="true">
                <path d="M1 4h24" class={`arrow ${kind}`} />
              </svg>
              {kind}
            </label>
          ))}
      </div>
      {refusal && (
        <p class="sentence" id="sentence">
          {refusal.sentence}
        </p>
      )}
      <div class="tools">
        {facets.map((facet) => {
          const about = data.statements[facet.statement];
          if (about.dims.length < 2) return null;
          const { axes, held } = facet.view;
          return (
            <fieldset key={facet.statement}>
              <legend>{about.name}</legend>
              {["across", "up"].map((side, k) => (
                <label key={side}>
                  {side}{" "}
                  <select
                    value={axes[k]}
                    onChange={(e) => {
                      const d = Number(e.currentTarget.value);
                      const next = [...axes];
                      const other = next.indexOf(d);
                      if (other >= 0) next[other] = next[k];
                      next[k] = d;
                      change(facet.statement, facet.window, { axes: next });
                    }}
                  >
                    {about.dims.map((name, d) => (
                      <option key={name} value={d}>
                        {name}
                      </option>
                    ))}
                  </select>
                </label>
              ))}
              {about.dims.map(
                (name, d) =>
                  !axes.includes(d) && (
                    <label key={name}>
                      {name} = {held[d]}{" "}
                      <input
                        type="range"
                        min={facet.window.box[d][0]}
                        max={facet.window.box[d][1]}
                        value={held[d]}
                        onInput={(e) => change(facet.statement, facet.window, { held: held.map((v, q) => (q === d ? Number(e.currentTarget.value) : v)) })}
                      />
                    </label>
                  ),
              )}
            </fieldset>
          );
        })}
      </div>
      {facets.length === 0 && <p>This statement has no bounded domain to draw.</p>}
      <div class="drawing" tabIndex={0} role="group" aria-label="Drawing of the domain">
        <svg width={width} height={height} class="domain">
          <defs>
            {[...KINDS, "refused"].map((kind) => (
              <marker key={kind} id={`head-${kind}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
                <path d="M0 0L8 4L0 8z" class={`head ${kind}`} />
              </marker>
            ))}
          </defs>
          {facets.map((facet, n) => (
            <Facet key={n} model={model} facet={facet} step={step} at={at} move={move} say={say} />
          ))}
          <g class="arrows" aria-hidden="true">
            {drawn}
            {violating && <path class="arrow refused" d={violating} marker-end="url(#head-refused)" />}
          </g>
          {facets.map((facet, n) => (
            <Axes key={n} model={model} facet={facet} />
          ))}
          {ends.map(
            ([end, place], n) =>
              place && (
                <g key={n} class="witness">
                  <circle cx={place[0]} cy={place[1]} r={6} />
                  <text x={place[0] + 8} y={place[1] - 8}>
                    {instance(model, end.statement, end.point)}
                  </text>
                </g>
              ),
          )}
        </svg>
      </div>
      {facets.some((f) => f.window.box.some(([low, high], d) => high - low < f.window.whole[d][1] - f.window.whole[d][0])) && (
        <p class="note">
          A window on a larger domain:{" "}
          {facets
            .map((f) => `${data.statements[f.statement].name} ${f.window.whole.map(([low, high], d) => `${data.statements[f.statement].dims[d]} ${low} … ${high}`).join(", ")}`)
            .join("; ")}
          .
        </p>
      )}
    </>
  );
}
