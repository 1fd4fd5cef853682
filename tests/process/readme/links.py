"""Every relative link of a Markdown page must lead to an existing file and heading.

usage: links.py SOURCE_FOLDER
"""

import pathlib
import re
import sys

LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGES = ("*.md", "docs/**/*.md", "tests/*/README.md", "bench/**/*.md")


def anchors(page):
    """The anchors of a page's headings, as code hosts make them."""
    names = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in names}


def fault(page, target):
    """Why the link is wrong; empty when it is right."""
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    if not file.exists():
        return "leads to no file"
    if anchor and anchor not in anchors(file):
        return "leads to no heading"
    return ""


def main():
    root = pathlib.Path(sys.argv[1])
    pages = [page for pattern in PAGES for page in sorted(root.glob(pattern))]
    wrong = [(page, target, why)
             for page in pages for target in LINK.findall(page.read_text(encoding="utf-8"))
             if "://" not in target and (why := fault(page, target))]
    for page, target, why in wrong:
        print(f"{page}: the link {target} {why}")
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
