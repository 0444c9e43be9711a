// Lights up what belongs together in all panes. It sets classes on elements directly: to draw the panes anew for each
// move of the pointer would take longer than a frame on a net of 500 statements.

const DARK = { statements: [], loop: null, point: null, line: null };

let lit = [];
let now = DARK;

function add(node, name) {
  node.classList.add(name);
  lit.push([node, name]);
}

const root = () => document.getElementById("explorer");

// Lights up again what is lit, where rows have come into the page.
export function relight() {
  for (const [node, name] of lit) node.classList.remove(name);
  lit = [];
  if (now === DARK) return;
  const { loop, point, line } = now;
  const wanted = new Set(now.statements.map(String));
  for (const node of root().querySelectorAll("[data-s]")) {
    if (!wanted.size || !node.dataset.s.split(" ").some((s) => wanted.has(s))) continue;
    if (node.classList.contains("own")) add(node, "lit");
    else if (!loop) add(node, "near");
    else if (node.dataset.loop === loop) add(node, "lit");
  }
  if (line) for (const node of root().querySelectorAll(`[data-line="${line}"]`)) add(node, "at-line");
  if (point) {
    const name = CSS.escape(point);
    for (const node of root().querySelectorAll(`[data-point="${name}"], [data-from="${name}"], [data-to="${name}"]`)) add(node, "here");
  }
}

export function dark() {
  now = DARK;
  relight();
}

// what: { statements: [place], loop: name or null, point: id or null, line: "kernel:line of its source" or null }
export function light(what) {
  now = { ...DARK, ...what };
  relight();
}
