"""The page in headless Chromium: `make test-explorer` installs what this needs; elsewhere it is skipped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.show.explorer.explored_nets import fixed, many_layers, two_layers

api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("there is no chromium", allow_module_level=True)

AXE = Path(__file__).parents[3] / "explorer" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    two_layers().save(tmp_path / "page.html")
    yield from opened(browser, tmp_path / "page.html")


def opened(browser: Any, path: Path) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, offline=True)
    page, faults = context.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith("file:") else faults.append(request.url)
    )
    page.goto(path.as_uri())
    page.wait_for_selector(".pane")
    yield page
    context.close()
    assert faults == []


def lit(page: Any, pane: str) -> list[str]:
    found = page.locator(f".{pane} .lit").all_inner_texts()
    return [text.strip() for text in found]


def test_a_statement_lights_up_in_all_panes(page: Any) -> None:
    page.hover(".statement-list .statement >> nth=1")
    assert lit(page, "tree-pane") == ["mac0 y0[i, j] += x[i, k] * w0[k, j]"]
    assert any("steps=64" in line for line in lit(page, "source-pane"))
    assert page.locator(".facet.lit .facet-title").first.inner_html().startswith("mac0")
    page.hover("h1")
    assert lit(page, "tree-pane") == []


def test_a_loop_lights_up_its_source(page: Any) -> None:
    page.hover('.tree-pane [data-loop="j"][data-s="1"]')
    assert any("for j in range(0, 4):" in line for line in lit(page, "source-pane"))
    assert [text.split()[0] for text in lit(page, "statement-list")] == ["mac0"]


def test_machine_code_lights_up_its_line_and_statement(page: Any) -> None:
    page.locator(".sources .line", has_text="steps=64").click()
    row = page.locator(".codes .line.own.lit").first  # which instructions are in view, the CPU decides
    row.hover()
    line = row.get_attribute("data-line")
    assert page.locator(f'.sources .at-line[data-line="{line}"]').count() == 1
    assert "mac0 y0[i, j] += x[i, k] * w0[k, j]" in lit(page, "tree-pane")
    number = int(line.split(":")[1])
    page.locator(f'.sources [data-line="{line}"]').hover()
    assert {*page.locator(".codes .at-line .number").all_text_contents()} == {str(number)}


def test_an_instance_says_its_name_and_lights_up_its_dependences(page: Any) -> None:
    point = page.locator(".facet circle.point").first
    point.hover()
    name = point.get_attribute("data-point")
    assert "[" in page.locator("#live").inner_text()
    count = page.locator(f'.arrow.here[data-from="{name}"], .arrow.here[data-to="{name}"]').count()
    assert count == page.locator(f'.arrow[data-from="{name}"], .arrow[data-to="{name}"]').count()


def test_arrow_keys_move_between_instances(page: Any) -> None:
    page.locator("g.facet").first.focus()
    page.keyboard.press("ArrowRight")
    first = page.locator("#live").inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator("#live").inner_text() not in ("", first)


def test_steps_show_the_tree_before_after_and_their_difference(page: Any) -> None:
    slider = page.locator('input[aria-label="Step"]')
    assert page.locator(".stepper output").inner_text().startswith("28 of 28")
    page.locator('button[aria-label="Step back"]').click()
    assert page.locator(".stepper output").inner_text().startswith("27 of 28: s.promote(")
    page.get_by_role("button", name="diff").click()
    assert page.locator(".tree li.added").count() == page.locator(".tree li.removed").count() == 1
    slider.focus()
    page.keyboard.press("Home")
    assert page.locator(".stepper output").inner_text() == "0 of 28: as written"
    page.keyboard.press("Tab")
    page.keyboard.press("]")
    assert page.locator(".stepper output").inner_text().startswith("1 of 28: s.fuse(")


def test_a_refused_fusion_is_an_arrow_between_two_instances(page: Any) -> None:
    page.get_by_role("tab", name="Refused fusions (1)").click()
    page.locator(".refused-list button").click()
    assert page.locator("path.arrow.refused").count() == 1
    assert page.locator(".witness text").all_text_contents() == ["relu0[0, 1]", "mac1[0, 0, 1]"]
    assert "is refused: it would break the flow dependence" in page.locator("#sentence").inner_text()
    page.get_by_role("button", name="back to dependences").click()
    assert page.locator("path.arrow.refused").count() == 0


def test_a_click_copies_a_next_step(page: Any) -> None:
    page.get_by_role("tab", name="Next legal steps").click()
    button = page.locator(".next button").first
    line = button.inner_text()
    button.click()
    page.wait_for_function("document.getElementById('live').textContent.startsWith('copied: s = s.')")
    page.locator("input[type=search]").focus()
    page.keyboard.press("Control+V")
    assert page.locator("input[type=search]").input_value() == line


def test_remarks_below_the_view_are_in_a_picture_of_the_whole_page(page: Any) -> None:
    page.locator("#tab-remarks").click()
    shown = page.locator(".remarks li").first.evaluate("row => getComputedStyle(row).contentVisibility")
    assert shown == "visible"


def test_search_filters_statements(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type("max(")
    names = page.locator(".statement-list .statement b").all_inner_texts()
    assert names == ["relu0", "relu1"]
    page.keyboard.press("Enter")
    assert page.locator('.statement[aria-pressed="true"] b').inner_text() == "relu0"


def test_keys_choose_statements_also_where_the_list_was_not_drawn(browser: Any, tmp_path: Path) -> None:
    many_layers().save(tmp_path / "page.html")
    for page in opened(browser, tmp_path / "page.html"):
        page.locator(".statement-list .statement >> nth=2").click()
        for key in ("End", "ArrowUp", "ArrowUp"):
            page.keyboard.press(key)
        chosen = page.locator('.statement[aria-pressed="true"]')
        count = int(page.locator(".statement-list h2 small").inner_text())
        assert int(chosen.get_attribute("data-s") or 0) == count - 3
        name = chosen.locator("b").inner_text()
        page.wait_for_function(
            "(name) => document.querySelector('.chosen-statement b').innerText === name", arg=name
        )
        page.wait_for_function("(s) => document.querySelector(`.facet[data-s='${s}']`)", arg=str(count - 3))


def test_equal_kernels_have_one_bar(browser: Any, tmp_path: Path) -> None:
    many_layers().save(tmp_path / "page.html")
    for page in opened(browser, tmp_path / "page.html"):
        rows = page.locator(".kernels th[scope=row]").all_inner_texts()
        count = len(many_layers().data["kernels"])
        assert count > 50
        assert len(rows) < 5
        assert sum(int(row.partition(" × ")[2] or 1) for row in rows) == count


def test_the_axes_are_chosen(page: Any) -> None:
    page.locator("fieldset select").nth(0).select_option(label="j")
    names = page.locator("g.axis").first.locator(".axis-name").all_text_contents()
    assert names == ["j", "i"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.skipif(not AXE.exists(), reason="axe-core is installed by npm")
def test_it_is_accessible(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.add_script_tag(path=AXE)
    for tab in ("Kernels", "Next legal steps", "Refused fusions (1)", "Remarks", "Steps"):
        page.get_by_role("tab", name=tab, exact=True).click()
        found = page.evaluate("axe.run()")["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []


MOVES = {
    "hover": """(k) => {
        const names = ['.statement', '.tree button', '.sources .line', 'circle.point'];
        const nodes = document.querySelectorAll(names[k % 4]);
        nodes[k % nodes.length].dispatchEvent(new MouseEvent('mouseenter'));
    }""",
    "slide": """(k) => {
        const slider = document.querySelector('input[aria-label="Step"]');
        slider.value = 3000 - 37 * k;
        slider.dispatchEvent(new InputEvent('input', { bubbles: true }));
    }""",
    "scroll": """(k) => {
        for (const name of ['.tree-pane .inside', '.sources', '.statement-list .inside'])
            document.querySelector(name).scrollTop = 240 * (k + 1);
    }""",
    "choose": """(k) => {
        const key = new KeyboardEvent('keydown', { key: k ? 'ArrowDown' : 'Home', bubbles: true });
        document.querySelector('.statement-list .inside').dispatchEvent(key);
    }""",
}

QUARTILE = """async (move) => {
    const frame = () => new Promise(requestAnimationFrame);
    const times = [];
    for (let k = 0; k < 60; k++) {
        await frame();
        const start = performance.now();
        eval(move)(k);
        await Promise.resolve();
        document.body.offsetHeight;
        times.push(performance.now() - start);
    }
    return times.sort((a, b) => a - b)[15];
}"""
"""The milliseconds of script, styles and layout that a quarter of the moves take at most: other work adds to them."""


def test_moves_take_less_than_a_frame_with_500_statements(browser: Any, tmp_path: Path) -> None:
    many_layers().save(tmp_path / "page.html")
    for page in opened(browser, tmp_path / "page.html"):
        page.wait_for_timeout(300)
        assert int(page.locator(".statement-list h2 small").inner_text()) >= 500
        assert page.locator("*").count() < 8000  # of 56,000 rows, those in view
        for name, move in MOVES.items():
            assert page.evaluate(QUARTILE, move) < 1000 / 60, name
        assert page.locator(".tree-pane .rows li").count() > 20


def test_a_step_shows_the_tree_from_whichever_step_one_comes(page: Any) -> None:
    def rows() -> list[str]:
        return page.locator(".tree li").all_inner_texts()

    slider = page.locator('input[aria-label="Step"]')
    slider.fill("9")
    forward = rows()
    slider.fill("3")
    assert rows() != forward
    slider.fill("28")
    slider.fill("9")
    assert rows() == forward


def look_dark(page: Any) -> None:
    page.emulate_media(color_scheme="dark")
    page.hover(".statement-list .statement >> nth=1")


def look_difference(page: Any) -> None:
    page.locator('button[aria-label="Step back"]').click()
    page.get_by_role("button", name="diff").click()
    page.get_by_role("tab", name="Steps", exact=True).click()


def look_refused(page: Any) -> None:
    page.get_by_role("tab", name="Refused fusions (1)").click()
    page.locator(".refused-list button").click()
    page.hover("h1")


def look_search(page: Any) -> None:
    page.locator("input[type=search]").fill("max(")
    page.get_by_role("tab", name="Remarks").click()


def look_narrow(page: Any) -> None:
    page.set_viewport_size({"width": 600, "height": 1500})
    page.get_by_role("tab", name="Next legal steps").click()


LOOKS: dict[str, Callable[[Any], None]] = {
    "first": lambda page: None,
    "dark": look_dark,
    "difference": look_difference,
    "refused": look_refused,
    "search": look_search,
    "narrow": look_narrow,
}
GOLDEN = Path(__file__).parent / "golden"
"""Screenshots, each looked at by a person; and in `browser.json` the chromium and the fonts that drew them."""

TONES = 48
"""How much of 255 a pixel may differ before it counts."""

MOST_DIFFERENT = 0.002
"""The part of a picture's pixels that may differ."""


def drawn_by(browser: Any, page: Any) -> dict[str, Any]:
    """The browser's version, and the widths of a text in the page's two fonts."""
    widths = page.evaluate(
        """() => ['system-ui, sans-serif', 'ui-monospace, SFMono-Regular, Menlo, Consolas, monospace'].map((font) => {
            const pen = document.createElement('canvas').getContext('2d');
            pen.font = `16px ${font}`;
            return pen.measureText('for i in range(0, 4): mac0[i, j]').width;
        })"""
    )
    return {"chromium": browser.version, "widths": widths}


@pytest.mark.parametrize("look", LOOKS)
def test_it_looks_as_it_did(browser: Any, tmp_path: Path, request: pytest.FixtureRequest, look: str) -> None:
    images = pytest.importorskip("PIL.Image")
    update, about = request.config.getoption("--update-golden"), GOLDEN / "browser.json"
    fixed().save(tmp_path / "page.html")
    for page in opened(browser, tmp_path / "page.html"):
        page.set_viewport_size({"width": 1000, "height": 900})
        by = drawn_by(browser, page)
        if not update and json.loads(about.read_text(encoding="utf-8")) != by:
            pytest.skip("the pictures were drawn by another chromium, or with other fonts")
        LOOKS[look](page)
        page.wait_for_timeout(200)
        page.screenshot(path=tmp_path / "now.png", full_page=True, animations="disabled", caret="hide")
    now = images.open(tmp_path / "now.png").convert("RGB")
    if update:
        now.save(GOLDEN / f"{look}.png", optimize=True)
        about.write_text(json.dumps(by, indent=1) + "\n", encoding="utf-8")
        return
    before = images.open(GOLDEN / f"{look}.png").convert("RGB")
    assert now.size == before.size
    apart = np.abs(np.asarray(now, int) - np.asarray(before, int)).max(axis=2) > TONES
    assert apart.mean() <= MOST_DIFFERENT, f"{apart.sum()} pixels differ: look at {tmp_path / 'now.png'}"
