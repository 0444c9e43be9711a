"""Ask each external link of the documentation for its page: `make links`.

A link is broken if its server answers 404 or 410, or has no such name while others have. Without a network the check is
skipped with a sentence; what answers something else, such as a refusal of programs, is listed and counts as there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CHANGELOG.md", "docs/**/*.md", "papers/*/README.md")
LINK = re.compile(r"https?://[^\s)>\]\"'`|]+")
GONE = (404, 410)
SECONDS = 15


def links(root: Path = ROOT) -> dict[str, list[str]]:
    """Return each external link with the pages that have it."""
    found: dict[str, list[str]] = {}
    for page in sorted(path for pattern in PAGES for path in root.glob(pattern)):
        name = str(page.relative_to(root))
        if "_build" not in name:
            for link in LINK.findall(page.read_text(encoding="utf-8")):
                found.setdefault(link.rstrip(".,;:"), []).append(name)
    return found


def answer(link: str) -> str:
    """Return what a link's server answers: "200", "404", or why there is no answer."""
    request = Request(link, headers={"User-Agent": "polyfuse documentation, link check"})
    try:
        with urlopen(request, timeout=SECONDS) as reply:
            return str(reply.status)
    except HTTPError as error:
        return str(error.code)
    except URLError as error:
        return f"no answer: {error.reason}"
    except OSError as error:
        return f"no answer: {error}"


def check(found: Iterable[str], ask: Callable[[str], str] = answer) -> tuple[list[str], str]:
    """Return the broken links, and one sentence on all of them.

    Args:
        found: The links.
        ask: Asks one.
    """
    every = list(found)
    with ThreadPoolExecutor(8) as pool:
        answers = dict(zip(every, pool.map(ask, every), strict=True))
    if every and all(each.startswith("no answer") for each in answers.values()):
        return [], f"links: not checked, as none of {len(every)} servers answers: there is no network here"
    for link, each in answers.items():
        if not each.startswith("2"):
            print(f"{each}: {link}")
    broken = [link for link, each in answers.items() if each in map(str, GONE) or "not known" in each]
    return broken, f"links: {len(every)} checked, {len(broken)} broken"


if __name__ == "__main__":
    pages = links()
    broken, said = check(pages)
    print(said)
    for link in broken:
        print(f"broken: {link} in {', '.join(pages[link])}")
    sys.exit(bool(broken))
