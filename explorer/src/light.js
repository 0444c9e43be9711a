// Lights up what belongs together in all panes. It sets classes on elements directly: to draw the panes anew for each
// move of the pointer would take longer than a frame on a net of 500 statements.

let lit = [];

function add(nodes, name) {
  for (const node of nodes) {
    node.classList.add(name);
    lit.push([node, name]);
  }
}

export function dark() {
  for (const [node, name] of lit) node.classList.remove(name);
  lit = [];
}

// what: { statements: [place], loop: name or null, point: id or null, line: "kernel:line of its source" or null }
export function light({ statements, loop = null, point = null, line = null }) {
  dark();
  const root = document.getElementById("explorer");
  for (const s of statements.slice(0, 64)) {
    add(root.querySelectorAll(`.own[data-s~="${s}"]`), "lit");
    if (!loop) add(root.querySelectorAll(`.around[data-s~="${s}"]`), "near");
    if (loop) add(root.querySelectorAll(`.around[data-loop="${CSS.escape(loop)}"][data-s~="${s}"]`), "lit");
  }
  if (line) add(root.querySelectorAll(`[data-line="${line}"]`), "at-line");
  if (point) {
    add(root.querySelectorAll(`[data-point="${CSS.escape(point)}"]`), "here");
    add(root.querySelectorAll(`[data-from="${CSS.escape(point)}"], [data-to="${CSS.escape(point)}"]`), "here");
  }
}
