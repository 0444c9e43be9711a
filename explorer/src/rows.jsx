import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { relight } from "./light.js";

const ROW = 20; // pixels, as --row in style.css
const MORE = 20; // rows that are drawn above and below those in view

// A list of rows of equal height, in the box above it that scrolls. Only rows in view, and some around them, are in the page:
// a net of 500 statements has some ten thousand lines of trees and source.
// at: { row } that is scrolled to when it changes, if it is out of view; longest: characters of the longest row
export function Rows({ count, at = null, longest = 0, children: row, ...rest }) {
  const list = useRef(null);
  const [range, setRange] = useState([0, 2 * MORE]);
  const look = () => {
    const inside = list.current.parentElement;
    const top = inside.getBoundingClientRect().top - list.current.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / ROW));
    const last = Math.min(count, Math.ceil((top + inside.clientHeight) / ROW));
    setRange((now) => (now[0] <= first && last <= now[1] ? now : [Math.max(0, first - MORE), last + MORE]));
  };
  useLayoutEffect(() => {
    const inside = list.current.parentElement;
    const watch = new ResizeObserver(look);
    inside.addEventListener("scroll", look, { passive: true });
    watch.observe(inside);
    look();
    return () => {
      inside.removeEventListener("scroll", look);
      watch.disconnect();
    };
  }, [count]);
  useLayoutEffect(() => {
    if (at === null) return;
    const inside = list.current.parentElement;
    const top = list.current.getBoundingClientRect().top - inside.getBoundingClientRect().top + at.row * ROW;
    if (top < 0 || top + ROW > inside.clientHeight) inside.scrollTop += top - inside.clientHeight / 3;
    look();
  }, [at]);
  useLayoutEffect(relight, [range, row]);
  const [first, last] = [Math.min(range[0], count), Math.min(range[1], count)];
  const style = { paddingTop: `${first * ROW}px`, paddingBottom: `${(count - last) * ROW}px`, minWidth: longest ? `max(100%, ${longest}ch)` : undefined };
  return (
    <ol {...rest} class={`rows ${rest.class}`} ref={list} style={style}>
      {Array.from({ length: last - first }, (_, k) => row(first + k))}
    </ol>
  );
}
