import { useEffect, useMemo, useRef } from "preact/hooks";
import { dark, light } from "./light.js";
import { lines, seconds } from "./model.js";

// Columns beside each other, each of which scrolls by itself.
export function Columns({ children }) {
  return <div class="columns">{children}</div>;
}

export function Column({ name, label, children }) {
  return (
    <div class={name} tabIndex={0} role="group" aria-label={label}>
      {children}
    </div>
  );
}

export function Pane({ name, title, children, note, plain }) {
  if (plain) {
    return (
      <section class={`pane ${name}`} aria-labelledby={`${name}-title`}>
        <h2 id={`${name}-title`}>
          {title} {note && <small>{note}</small>}
        </h2>
        {children}
      </section>
    );
  }
  return (
    <section class={`pane ${name}`} aria-labelledby={`${name}-title`}>
      <h2 id={`${name}-title`}>
        {title} {note && <small>{note}</small>}
      </h2>
      <div class="inside" tabIndex={0} role="group" aria-labelledby={`${name}-title`}>
        {children}
      </div>
    </section>
  );
}

export function Statements({ model, query, chosen, choose, domainOf }) {
  const wanted = query.toLowerCase();
  const found = model.data.statements
    .map((s, k) => [s, k])
    .filter(([s]) => !wanted || [s.name, s.text, s.domain, ...s.accesses.map((a) => a.relation)].some((text) => text.toLowerCase().includes(wanted)));
  const list = useRef(null);
  const press = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by || !found.length) return;
    event.preventDefault();
    const now = found.findIndex(([, k]) => k === chosen);
    const next = found[Math.max(0, Math.min(found.length - 1, now + by))][1];
    choose(next);
    light({ statements: [next] });
    list.current.querySelector(`[data-s="${next}"]`)?.focus();
  };
  return (
    <ul class="statements" ref={list} onKeyDown={press} aria-label="Statements">
      {found.map(([s, k]) => (
        <li key={k}>
          <button
            type="button"
            class="own statement"
            data-s={k}
            aria-pressed={k === chosen}
            tabIndex={k === chosen || (k === found[0][1] && !found.some(([, n]) => n === chosen)) ? 0 : -1}
            onClick={() => choose(k)}
            onMouseEnter={() => light({ statements: [k] })}
            onMouseLeave={dark}
            onFocus={() => light({ statements: [k] })}
            onBlur={dark}
          >
            <b>{s.name}</b> <code>{s.text}</code>
          </button>
          {k === chosen && (
            <dl>
              <dt>domain</dt>
              <dd>
                <code>{s.domain}</code>
              </dd>
              {s.accesses.map((access, n) => (
                <>
                  <dt key={`t${n}`}>{access.kind}</dt>
                  <dd key={`d${n}`}>
                    <code>{access.relation}</code>
                  </dd>
                </>
              ))}
              {model.data.dependences
                .filter((each) => each.source === k || each.sink === k)
                .slice(0, 24)
                .map((each, n) => (
                  <>
                    <dt key={`k${n}`} class={each.kind}>
                      {each.kind}
                    </dt>
                    <dd key={`r${n}`}>
                      <code>{each.relation}</code>
                    </dd>
                  </>
                ))}
            </dl>
          )}
        </li>
      ))}
      {found.length === 0 && <li>No statement has “{query}”.</li>}
    </ul>
  );
}

const MARK = { kept: " ", removed: "−", added: "+" };

export function Tree({ model, step, view, choose }) {
  const shown = useMemo(() => {
    const after = model.tree(step);
    const before = step ? model.tree(step - 1) : [];
    const mark = (rows, name, from, to) => lines(model, rows).map((line, k) => ({ ...line, mark: k >= from && k < to ? name : "kept" }));
    const [at, removed, put] = model.data.steps[step].splice;
    if (step === 0 || view === "after") return mark(after, "added", at, step ? at + put.length : at);
    if (view === "before") return mark(before, "removed", at, at + removed);
    const old = mark(before, "removed", at, at + removed);
    const now = mark(after, "added", at, at + put.length);
    return [...now.slice(0, at), ...old.slice(at, at + removed), ...now.slice(at)];
  }, [model, step, view]);
  return (
    <ol class="tree" aria-label={`Schedule tree, ${view === "before" ? "before" : "after"} step ${step}`}>
      {shown.map((line, n) => {
        const loop = line.kind === "loop";
        const over = () => light({ statements: line.members, loop: loop ? line.loop : null });
        const words = loop ? line.text.replace("for ", "") : line.text;
        return (
          <li key={n} class={`${line.mark} ${line.kind}`} style={{ paddingLeft: `${line.depth * 1.1 + 1.2}em` }}>
            <span class="mark" aria-label={line.mark === "kept" ? undefined : line.mark} role={line.mark === "kept" ? undefined : "img"}>
              {MARK[line.mark]}
            </span>
            {line.kind === "barrier" ? (
              <i>{line.text}</i>
            ) : (
              <button
                type="button"
                class={loop ? "around" : "own"}
                data-s={line.members.join(" ")}
                data-loop={loop ? line.loop : undefined}
                onMouseEnter={over}
                onFocus={over}
                onMouseLeave={dark}
                onBlur={dark}
                onClick={() => line.members.length && choose(line.members[0])}
              >
                {loop ? (
                  <>
                    <span class="word">for</span> {words.replace(/^(\S+)/, "$1")}
                    {line.trips !== null && <span class="trips"> × {line.trips}</span>}
                  </>
                ) : (
                  <b>{line.text}</b>
                )}{" "}
                <code>{line.detail}</code>
              </button>
            )}
          </li>
        );
      })}
    </ol>
  );
}

// The machine code of one kernel. A row belongs to a line of source, and by it to statements and a loop; where no line is
// known, to all statements of the kernel.
export function Assembly({ model, kernel, choose }) {
  const { data } = model;
  const about = data.kernels[kernel];
  if (!about || about.assembly === null || about.assembly === undefined) return <p>No machine code is shown of this kernel.</p>;
  return (
    <div class="source assembly">
      {data.assembly[about.assembly].map(([text, line], n) => {
        const [, statements, loop] = line === null ? ["", [], null] : about.source[line - 1];
        const owners = statements.length ? statements : about.statements;
        const own = statements.length && !loop && statements.length <= 3;
        const over = () => light({ statements: owners, loop, line: line === null ? null : `${kernel}:${line}` });
        const label = text.endsWith(":");
        return (
          <div
            key={n}
            class={`line ${own ? "own" : loop ? "around" : ""}`}
            data-s={statements.join(" ")}
            data-loop={loop ?? undefined}
            data-line={line === null ? undefined : `${kernel}:${line}`}
            onMouseEnter={label ? undefined : over}
            onMouseLeave={label ? undefined : dark}
            onClick={() => {
              if (statements.length) choose(statements[0]);
              if (line !== null) bring(".sources", `${kernel}:${line}`);
            }}
          >
            <span class="number" aria-hidden="true">
              {label ? "" : (line ?? "·")}
            </span>
            <code>{label ? text : `  ${text}`}</code>
          </div>
        );
      })}
    </div>
  );
}

// Scrolls a column to the first row of a line of source.
function bring(column, line) {
  const inside = document.querySelector(`.source-pane ${column}`);
  const node = inside?.querySelector(`[data-line="${line}"]`);
  if (node) inside.scrollTop += node.getBoundingClientRect().top - inside.getBoundingClientRect().top - inside.clientHeight / 3;
}

export function Source({ model, choose }) {
  const { data } = model;
  if (!data.kernels.length) return <p>Nothing was emitted: this is a schedule, not an executable.</p>;
  return (
    <>
      {data.kernels.map((kernel, k) => (
        <details key={k} open={k < 12}>
          <summary>
            {kernel.name}
            {kernel.once && " (once for all calls)"} <small>{seconds(kernel.predicted)}</small>
          </summary>
          <div class="source">
            {kernel.source.map(([text, statements, loop], n) => {
              const line = `${k}:${n + 1}`;
              const over = () => light({ statements, loop, line });
              return (
                <div
                  key={n}
                  class={`line ${statements.length ? (loop ? "around" : statements.length > 3 ? "around" : "own") : ""}`}
                  data-s={statements.join(" ")}
                  data-loop={loop ?? undefined}
                  data-line={line}
                  onMouseEnter={over}
                  onMouseLeave={dark}
                  onClick={() => {
                    if (statements.length) choose(statements[0]);
                    bring(".codes", line);
                  }}
                >
                  <span class="number" aria-hidden="true">
                    {n + 1}
                  </span>
                  <code>{text || " "}</code>
                </div>
              );
            })}
          </div>
        </details>
      ))}
      {data.header && (
        <details>
          <summary>imports</summary>
          <pre>{data.header}</pre>
        </details>
      )}
    </>
  );
}

export function useScrolledTo(statement) {
  useEffect(() => {
    for (const pane of [".tree-pane .inside", ".source-pane .sources", ".source-pane .codes"]) {
      const inside = document.querySelector(pane);
      // in source the last line: what is before the kernel's body describes the statement, or is called by it
      const rows = [...(inside?.querySelectorAll(`.own[data-s~="${statement}"]`) ?? [])];
      const node = pane.endsWith(".codes") ? rows[0] : rows.pop();
      if (node) inside.scrollTop += node.getBoundingClientRect().top - inside.getBoundingClientRect().top - inside.clientHeight / 3;
    }
  }, [statement]);
}
