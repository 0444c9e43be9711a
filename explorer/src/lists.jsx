import { scaleLinear } from "d3-scale";
import { useMemo } from "preact/hooks";
import { dark, light } from "./light.js";
import { instance, seconds } from "./model.js";
import { Rows } from "./rows.jsx";

// The browser lays out what is in view of a longer list; a shorter one is there in print and in pictures of the whole page too.
const MANY = 200;
const size = (list) => (list.length > MANY ? " many" : "");

// Kernels of one name and of the same times once, with their number: layers of one shape run one function.
function folded(kernels) {
  const found = new Map();
  for (const kernel of kernels) {
    const key = JSON.stringify([kernel.name, kernel.once, kernel.bound, kernel.predicted, kernel.measured]);
    const one = found.get(key) ?? { ...kernel, count: 0, statements: [] };
    found.set(key, { ...one, count: one.count + 1, statements: one.statements.concat(kernel.statements) });
  }
  return [...found.values()];
}

export function Kernels({ model }) {
  const kernels = useMemo(() => folded(model.data.kernels), [model]);
  const most = Math.max(...kernels.flatMap((k) => [k.bound, k.predicted, k.measured].map((v) => v ?? 0)), 1e-12);
  const width = scaleLinear([0, most], [0, 100]);
  if (!kernels.length) return <p>No kernel was emitted.</p>;
  return (
    <table class="kernels">
      <thead>
        <tr>
          <th scope="col">kernel</th>
          <th scope="col">bound, predicted, measured (seconds of a call, from 0)</th>
        </tr>
      </thead>
      <tbody>
        {kernels.map((kernel, n) => (
          <tr key={n} onMouseEnter={() => light({ statements: kernel.statements })} onMouseLeave={dark}>
            <th scope="row">
              {kernel.name}
              {kernel.count > 1 && ` × ${kernel.count}`}
              {kernel.once && " (once)"}
            </th>
            <td>
              {["bound", "predicted", "measured"].map((what) => (
                <div class="bar-row" key={what}>
                  <span class="bar-name">{what}</span>
                  <span class="bar-space">
                    {kernel[what] != null && <span class={`bar ${what}`} style={{ width: `${width(kernel[what])}%` }} />}
                  </span>
                  <span class="bar-value">{kernel[what] == null && what === "measured" ? "not measured" : seconds(kernel[what])}</span>
                </div>
              ))}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function Refused({ model, shown, show }) {
  const { refused } = model.data;
  if (!refused.length) return <p>No fusion was refused for a dependence.</p>;
  return (
    <ul class={`refused-list${size(refused)}`}>
      {refused.map((each, n) => {
        const drawn = each.source.window && each.sink.window;
        return (
          <li key={n}>
            <button type="button" aria-pressed={shown === n} disabled={!drawn} onClick={() => show(n)}>
              <b>{each.kind}</b> {each.source.statement === null ? "?" : instance(model, each.source.statement, each.source.point)} →{" "}
              {each.sink.statement === null ? "?" : instance(model, each.sink.statement, each.sink.point)}
            </button>
            <p>{each.sentence}</p>
          </li>
        );
      })}
    </ul>
  );
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // a page that was opened as a file, or in a frame, may not use the clipboard itself
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

export function Next({ model, say }) {
  const { next, machine } = model.data;
  if (!next.length) return <p>No legal next step was found among those tried.</p>;
  return (
    <table class="next">
      <caption>Legal steps behind the last one, with the seconds that the model predicts on {machine}. A click copies the Python line.</caption>
      <tbody>
        {next.map((one, n) => (
          <tr key={n}>
            <td>
              <button type="button" onClick={async () => say((await copied(one.python)) ? `copied: ${one.python}` : `not copied; the line is ${one.python}`)}>
                <code>{one.python}</code>
              </button>
            </td>
            <td>{seconds(one.seconds)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function Remarks({ model, query }) {
  const wanted = query.toLowerCase();
  const found = model.data.remarks.filter((r) => !wanted || r.text.toLowerCase().includes(wanted));
  return (
    <ul class={`remarks${size(found)}`}>
      {found.map((remark, n) => (
        <li key={n} onMouseEnter={() => light({ statements: remark.statements })} onMouseLeave={dark}>
          <b class={remark.taken ? "taken" : "left"}>{remark.taken ? "taken" : "left"}</b> <i>{remark.pass}</i> {remark.text}
        </li>
      ))}
      {found.length === 0 && <li>No remark has “{query}”.</li>}
    </ul>
  );
}

export function Steps({ model, step, go }) {
  const { steps } = model.data;
  const at = useMemo(() => ({ row: step }), []);
  const longest = useMemo(() => 8 + steps.reduce((most, one) => Math.max(most, one.text.length), 0), [steps]);
  return (
    <Rows count={steps.length} at={at} longest={longest} class="steps" aria-label="Steps of the schedule">
      {(n) => (
        <li key={n} aria-posinset={n + 1} aria-setsize={steps.length}>
          <button type="button" aria-current={n === step ? "step" : undefined} onClick={() => go(n)}>
            <code>
              {n} {steps[n].text}
            </code>
          </button>
        </li>
      )}
    </Rows>
  );
}
