import { render } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Domain } from "./domain.jsx";
import { Kernels, Next, Refused, Remarks, Steps } from "./lists.jsx";
import { model as modelOf, seconds } from "./model.js";
import { Assembly, Column, Columns, Pane, Source, Statement, Statements, Tree, searched } from "./panes.jsx";
import styles from "./style.css?inline";

const TABS = ["kernels", "next", "refused", "remarks", "steps"];
const NAMES = { kernels: "Kernels", next: "Next legal steps", refused: "Refused fusions", remarks: "Remarks", steps: "Steps" };

// The statement that is shown first: of the dearest kernel the one in most loops.
function first(data) {
  const dearest = [...data.kernels].sort((a, b) => (b.predicted ?? 0) - (a.predicted ?? 0))[0];
  const among = dearest?.statements.length ? dearest.statements : data.statements.map((_, k) => k);
  return [...among].sort((a, b) => data.statements[b].dims.length - data.statements[a].dims.length)[0] ?? 0;
}

// What the columns of source and of machine code are scrolled to: a statement, or a line of source.
const shownOf = (statement) => ({ sources: { statement }, codes: { statement } });

// A value some milliseconds after its last change. What takes long to draw follows the chosen statement so, and a key that is
// held down moves through the list at the pace of the screen.
function useSettled(value, wait) {
  const [settled, settle] = useState(value);
  useEffect(() => {
    const timer = setTimeout(settle, wait, value);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

const SOON = 40; // milliseconds after which relations and source follow the chosen statement
const LATER = 80; // and its domain, in a frame of its own

function sourceNote(data, kernel, assembly) {
  const count = data.kernels.length;
  if (!count) return "";
  return `${count} ${count === 1 ? "kernel" : "kernels"}${assembly ? `; machine code of ${data.kernels[kernel].name}` : ""}`;
}

function Explorer({ model }) {
  const { data } = model;
  const last = data.steps.length - 1;
  const [step, go] = useState(last);
  const [view, setView] = useState("after");
  const [statement, setStatement] = useState(() => first(data));
  const [to, bring] = useState(() => shownOf(statement));
  const [refusal, setRefusal] = useState(null);
  const [query, setQuery] = useState("");
  const [tab, setTab] = useState("kernels");
  const [theme, setTheme] = useState("auto");
  const search = useRef(null);
  const live = useRef(null);
  const say = useCallback((text) => {
    live.current.textContent = text;
  }, []);
  const choose = useCallback((s) => {
    setStatement(s);
    setRefusal(null);
    bring(shownOf(s));
  }, []);

  useEffect(() => {
    document.documentElement.dataset.theme = theme;
  }, [theme]);
  useEffect(() => {
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const typing = event.target.matches("input[type=search], select");
      if (event.key === "Escape" && typing) event.target.blur();
      if (typing) return;
      const does = {
        "/": () => search.current.focus(),
        "[": () => go((n) => Math.max(0, n - 1)),
        "]": () => go((n) => Math.min(last, n + 1)),
        d: () => setView((v) => (v === "diff" ? "after" : "diff")),
        b: () => setView((v) => (v === "before" ? "after" : "before")),
      }[event.key];
      if (does) {
        event.preventDefault();
        does();
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [last]);

  const near = useSettled(statement, SOON);
  const drawn = useSettled(statement, LATER);
  const shown = useSettled(to, SOON);

  const statements = useMemo(() => <Statements model={model} query={query} chosen={statement} choose={choose} />, [model, query, statement]);
  const tree = useMemo(() => <Tree model={model} step={step} view={view} statement={statement} choose={choose} />, [model, step, view, statement]);
  const source = useMemo(() => <Source model={model} to={shown.sources} choose={choose} bring={bring} />, [model, shown.sources]);
  const kernel = model.kernelOf.get(near) ?? 0;
  const assembly = useMemo(() => data.assembly?.length ? <Assembly model={model} kernel={kernel} to={shown.codes} choose={choose} bring={bring} /> : null, [model, kernel, shown.codes]);
  const relations = useMemo(() => <Statement model={model} statement={near} />, [model, near]);
  const domain = useMemo(() => <Domain model={model} step={step} statement={drawn} refusal={refusal === null ? null : data.refused[refusal]} close={() => setRefusal(null)} say={say} />, [model, step, drawn, refusal]);
  const lists = {
    kernels: useMemo(() => <Kernels model={model} />, [model]),
    next: useMemo(() => <Next model={model} say={say} />, [model]),
    refused: useMemo(() => <Refused model={model} shown={refusal} show={setRefusal} />, [model, refusal]),
    remarks: useMemo(() => <Remarks model={model} query={query} />, [model, query]),
    steps: useMemo(() => <Steps model={model} step={step} go={go} />, [model, step]),
  };
  const press = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const next = TABS[(TABS.indexOf(tab) + by + TABS.length) % TABS.length];
    setTab(next);
    document.getElementById(`tab-${next}`).focus();
  };
  const sizes = Object.entries(data.nest.sizes).map(([name, value]) => `${name} = ${value}`).join(", ");
  return (
    <>
      <header>
        <h1>
          {data.nest.name} <small>{[sizes, data.machine, data.seconds === null ? "" : `${seconds(data.seconds)} predicted`].filter(Boolean).join(" · ")}</small>
        </h1>
        <label>
          <span class="hidden">Search statements and remarks</span>
          <input ref={search} type="search" placeholder="Search ( / )" value={query} onInput={(e) => setQuery(e.currentTarget.value)} onKeyDown={(e) => {
            if (e.key !== "Enter" || !query) return;
            const [found] = searched(model, query);
            if (found !== undefined) choose(found);
          }} />
        </label>
        <label>
          theme{" "}
          <select value={theme} onChange={(e) => setTheme(e.currentTarget.value)}>
            <option>auto</option>
            <option>light</option>
            <option>dark</option>
          </select>
        </label>
      </header>
      <section class="stepper" aria-label="Steps of the schedule">
        <button type="button" onClick={() => go(Math.max(0, step - 1))} disabled={step === 0} aria-label="Step back">
          ‹
        </button>
        <input type="range" min={0} max={last} value={step} onInput={(e) => go(Number(e.currentTarget.value))} aria-label="Step" aria-valuetext={`${step} of ${last}: ${data.steps[step].text}`} />
        <button type="button" onClick={() => go(Math.min(last, step + 1))} disabled={step === last} aria-label="Step on">
          ›
        </button>
        <output>
          {step} of {last}: <code>{data.steps[step].text}</code>
        </output>
        <span role="group" aria-label="Show the tree">
          {["before", "diff", "after"].map((v) => (
            <button key={v} type="button" aria-pressed={view === v} onClick={() => setView(v)}>
              {v}
            </button>
          ))}
        </span>
      </section>
      <main>
        <Pane name="statement-list" title="Statements" note={`${data.statements.length}`} plain>
          {statements}
          {relations}
        </Pane>
        <Pane name="tree-pane" title="Schedule tree">
          {tree}
        </Pane>
        <Pane name="domain-pane" title={refusal === null ? "Iteration domain" : "Refused fusion"}>
          {domain}
        </Pane>
        <Pane name="source-pane" title={assembly ? "Emitted source, and machine code" : "Emitted source"} note={sourceNote(data, kernel, assembly)} plain>
          <Columns>
            <Column name="sources" label="Emitted source">
              {source}
            </Column>
            {assembly && (
              <Column name="codes" label={`Machine code of ${data.kernels[kernel].name}`}>
                {assembly}
              </Column>
            )}
          </Columns>
        </Pane>
      </main>
      <section aria-label="Lists">
      <div class="tabs" role="tablist" aria-label="Lists" onKeyDown={press}>
        {TABS.map((name) => (
          <button key={name} type="button" role="tab" id={`tab-${name}`} aria-selected={tab === name} aria-controls="list" tabIndex={tab === name ? 0 : -1} onClick={() => setTab(name)}>
            {NAMES[name]}
            {name === "refused" && ` (${data.refused.length})`}
          </button>
        ))}
      </div>
      <div id="list" role="tabpanel" aria-labelledby={`tab-${tab}`} tabIndex={0}>
        {lists[tab]}
      </div>
      </section>
      <footer>
        <p ref={live} id="live" role="status" aria-live="polite" />
        <p class="keys">
          <kbd>/</kbd> search, <kbd>[</kbd> <kbd>]</kbd> steps, <kbd>d</kbd> diff, <kbd>b</kbd> before, arrow keys in statements and domains
        </p>
      </footer>
    </>
  );
}

const style = document.createElement("style");
style.textContent = styles;
document.head.append(style);
const data = JSON.parse(document.getElementById("data").textContent);
render(<Explorer model={modelOf(data)} />, document.getElementById("explorer"));
