import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { dark, light } from "./light.js";
import { line, seconds } from "./model.js";
import { Rows } from "./rows.jsx";

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

// The statements that a search finds; all if nothing is searched for.
export function searched(model, query) {
  const wanted = query.toLowerCase();
  const all = model.data.statements.map((_, k) => k);
  if (!wanted) return all;
  return all.filter((k) => model.searchable(k).includes(wanted));
}

export function Statements({ model, query, chosen, choose }) {
  const { statements } = model.data;
  const shown = useMemo(() => searched(model, query), [model, query]);
  const box = useRef(null);
  const row = shown.indexOf(chosen);
  const at = useMemo(() => found(row), [row]);
  const longest = useMemo(() => 4 + width(shown.map((k) => `${statements[k].name}${statements[k].text}`)), [shown]);
  const [focused, focus] = useState(null);
  useLayoutEffect(() => {
    if (!focused) return;
    // a row that is not in the page yet cannot have the focus, and the one that had it is about to leave
    const row = box.current.querySelector(`[data-s="${focused.statement}"]`) ?? box.current;
    row.focus({ preventScroll: true });
  }, [focused]);
  const press = (event) => {
    const to = { ArrowDown: row + 1, ArrowUp: row - 1, Home: 0, End: shown.length - 1 }[event.key];
    if (to === undefined || !shown.length) return;
    event.preventDefault();
    const next = shown[Math.max(0, Math.min(shown.length - 1, to))];
    choose(next);
    focus({ statement: next });
  };
  return (
    <div class="inside" tabIndex={0} role="group" aria-label="Statements; arrow keys move between them" ref={box} onKeyDown={press}>
      {shown.length === 0 && <p>No statement has “{query}”.</p>}
      <Rows count={shown.length} at={at} longest={longest} class="statements" aria-label="Statements">
        {(n) => {
          const k = shown[n];
          const over = () => light({ statements: [k] });
          return (
            <li key={k} aria-posinset={n + 1} aria-setsize={shown.length}>
              <button type="button" class="own statement" data-s={k} aria-pressed={k === chosen} tabIndex={k === chosen ? 0 : -1} onClick={() => choose(k)} onMouseEnter={over} onMouseLeave={dark} onFocus={over} onBlur={dark}>
                <b>{statements[k].name}</b> <code>{statements[k].text}</code>
              </button>
            </li>
          );
        }}
      </Rows>
    </div>
  );
}

const MOST_DEPENDENCES = 24; // of one statement, that are written out

// The domain, the accesses and the dependences of one statement.
export function Statement({ model, statement }) {
  const s = model.data.statements[statement];
  if (!s) return null;
  const dependences = model.data.dependences.filter((each) => each.source === statement || each.sink === statement);
  const terms = [
    ["domain", s.domain],
    ...s.accesses.map((access) => [access.kind, access.relation]),
    ...dependences.slice(0, MOST_DEPENDENCES).map((each) => [each.kind, each.relation]),
  ];
  return (
    <div class="chosen-statement" tabIndex={0} role="group" aria-label={`Relations of ${s.name}`}>
      <b>{s.name}</b>
      <dl>
        {terms.map(([term, text], n) => [
          <dt key={`t${n}`} class={term}>
            {term}
          </dt>,
          <dd key={`d${n}`}>
            <code>{text}</code>
          </dd>,
        ])}
      </dl>
    </div>
  );
}

const MARK = { kept: " ", removed: "−", added: "+" };

const width = (texts) => texts.reduce((most, text) => Math.max(most, text.length), 0);

// The rows of a tree before or after a step, or of both: with a way to each row's line, and to its mark.
function viewed(model, step, view) {
  const before = step ? model.tree(step - 1) : [];
  const after = model.tree(step);
  const [at, removed, put] = step ? model.data.steps[step].splice : [0, 0, []];
  const marked = (rows, name, count) => ({ rows, line: (n) => line(model, rows, n), mark: (n) => (n >= at && n < at + count ? name : "kept") });
  if (step === 0 || view === "after") return marked(after, "added", put.length);
  if (view === "before") return marked(before, "removed", removed);
  return {
    rows: after.slice(0, at).concat(before.slice(at, at + removed), after.slice(at)),
    line: (n) => (n >= at && n < at + removed ? line(model, before, n) : line(model, after, n < at ? n : n - removed)),
    mark: (n) => (n < at || n >= at + removed + put.length ? "kept" : n < at + removed ? "removed" : "added"),
  };
}

export function Tree({ model, step, view, statement, choose }) {
  const { rows, line, mark } = useMemo(() => viewed(model, step, view), [model, step, view]);
  const name = model.data.statements[statement]?.name;
  const at = useMemo(() => found(rows.findLastIndex((row) => model.data.rows[row][1] === "statement" && model.data.rows[row][2] === name)), [statement]);
  const longest = 10 + rows.reduce((most, row) => Math.max(most, model.widths[row]), 0);
  return (
    <Rows count={rows.length} at={at} longest={longest} class="tree" aria-label={`Schedule tree, ${view === "before" ? "before" : "after"} step ${step}`}>
      {(n) => <TreeLine key={n} line={{ ...line(n), mark: mark(n) }} choose={choose} place={[n, rows.length]} />}
    </Rows>
  );
}

const found = (row) => (row >= 0 ? { row } : null);

function TreeLine({ line, choose, place }) {
  const loop = line.kind === "loop";
  const over = () => light({ statements: line.members, loop: loop ? line.loop : null });
  return (
    <li aria-posinset={place[0] + 1} aria-setsize={place[1]} class={`${line.mark} ${line.kind}`} style={{ paddingLeft: `${line.depth * 1.1 + 1.2}em` }}>
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
              <span class="word">for</span> {line.text.replace("for ", "")}
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
}

// A line of source, or of machine code: of one statement or few, of a loop, or of a whole kernel.
function Line({ text, number, statements, owners, loop, line, own, click, lights = true }) {
  const over = () => light({ statements: owners, loop, line });
  return (
    <li
      class={`line ${own ? "own" : statements.length ? "around" : ""}`}
      data-s={statements.join(" ")}
      data-loop={loop ?? undefined}
      data-line={line ?? undefined}
      onMouseEnter={lights ? over : undefined}
      onMouseLeave={lights ? dark : undefined}
      onClick={click}
    >
      <span class="number" aria-hidden="true">
        {number}
      </span>
      <code>{text || " "}</code>
    </li>
  );
}

const MOST_OWN = 3; // statements of a line that is drawn as theirs

const isOwn = ({ statements, loop }) => statements.length > 0 && !loop && statements.length <= MOST_OWN;

// The machine code of one kernel. A row belongs to a line of source, and by it to statements and a loop; where no line is
// known, to all statements of the kernel.
// to: what is scrolled to, { statement } or { line }
export function Assembly({ model, kernel, to, choose, bring }) {
  const about = model.data.kernels[kernel];
  const listing = model.data.assembly[about?.assembly] ?? null;
  const rows = useMemo(
    () =>
      (listing ?? []).map(([text, line]) => {
        const [, statements, loop] = line === null ? ["", [], null] : about.source[line - 1];
        const label = text.endsWith(":");
        return { text: label ? text : `  ${text}`, label, number: label ? "" : (line ?? "·"), line: line === null ? null : `${kernel}:${line}`, statements, loop };
      }),
    [listing, kernel],
  );
  const at = useMemo(() => to && found(rows.findIndex(to.line ? (row) => row.line === to.line : (row) => isOwn(row) && row.statements.includes(to.statement))), [to, rows]);
  if (!listing) return <p>No machine code is shown of this kernel.</p>;
  return (
    <Rows count={rows.length} at={at} longest={8 + width(rows.map((row) => row.text))} class="source assembly" aria-label={`Machine code of ${about.name}`}>
      {(n) => {
        const row = rows[n];
        const click = () => {
          if (row.statements.length) choose(row.statements[0]);
          if (row.line !== null) bring({ sources: { line: row.line }, codes: null });
        };
        return <Line key={n} {...row} owners={row.statements.length ? row.statements : about.statements} own={isOwn(row)} lights={!row.label} click={click} />;
      }}
    </Rows>
  );
}

// Every kernel's name and lines, and what their sources import, as one list of rows.
function sourceRows(data, closed) {
  const rows = data.kernels.flatMap((kernel, k) => [
    { head: `${kernel.name}${kernel.once ? " (once for all calls)" : ""}`, note: seconds(kernel.predicted), key: k },
    ...(closed.has(k) ? [] : kernel.source.map(([text, statements, loop], n) => ({ text, statements, loop, number: n + 1, line: `${k}:${n + 1}` }))),
  ]);
  if (!data.header) return rows;
  const imports = data.header.split("\n").map((text, n) => ({ text, statements: [], loop: null, number: n + 1, line: null }));
  return [...rows, { head: "imports", note: "", key: "imports" }, ...(closed.has("imports") ? [] : imports)];
}

export function Source({ model, to, choose, bring }) {
  const { data } = model;
  const [closed, close] = useState(new Set());
  const rows = useMemo(() => sourceRows(data, closed), [data, closed]);
  // of a statement the last line: what is before the kernel's body describes it, or is called by it
  const at = useMemo(() => to && found(to.line ? rows.findIndex((row) => row.line === to.line) : rows.findLastIndex((row) => !row.head && isOwn(row) && row.statements.includes(to.statement))), [to]);
  const longest = useMemo(() => 8 + width(rows.map((row) => row.head ?? row.text)), [rows]);
  if (!data.kernels.length) return <p>Nothing was emitted: this is a schedule, not an executable.</p>;
  const toggle = (key) => close(closed.has(key) ? new Set([...closed].filter((other) => other !== key)) : new Set([...closed, key]));
  return (
    <Rows count={rows.length} at={at} longest={longest} class="source" aria-label="Emitted source">
      {(n) => {
        const row = rows[n];
        if (row.head) {
          return (
            <li key={n} class="head">
              <button type="button" aria-expanded={!closed.has(row.key)} onClick={() => toggle(row.key)}>
                {row.head} <small>{row.note}</small>
              </button>
            </li>
          );
        }
        const click = () => {
          if (row.statements.length) choose(row.statements[0]);
          if (row.line !== null) bring({ sources: null, codes: { line: row.line } });
        };
        return <Line key={n} {...row} owners={row.statements} own={isOwn(row)} click={click} />;
      }}
    </Rows>
  );
}
