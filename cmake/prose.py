#!/usr/bin/env python3
"""Checks the rules of CONTRIBUTING.md for prose that a machine can recognise.

    cmake/prose.py [FILE...]      comments of C++, Python, shell and CMake, and paragraphs of Markdown

Without files: all that git tracks. Prints FILE:LINE: rule: text, and ends with 1 when there is any.
"""

import io
import pathlib
import re
import subprocess
import sys
import tokenize

MOST_WORDS = 30
OPENINGS = ("Of", "What", "Who", "Whoever", "Whose", "Where")
PHRASES = {
    r", too\b[,.;:]?": 'say "also"',
    r"\bthat (?:is|are) none\b": "name the object and say what is wrong with it",
    r"\b(?:is|are|was|were) through\b": 'say "complete" or "finished"',
    r"\bbehind (?:it|them|that|this)\b": 'say "after"',
    r"\blet go\b": 'say "released"',
    r"\b[Ss]o many\b|\b[Ss]o much\b": "name the number or the quantity",
}
HASH_COMMENTS = {".sh", ".cmake", ".txt", ".py"}


def cpp_comments(text):
    """(line, text) of each comment; consecutive // lines are one."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    block, begin, last = [], 0, -2
    for found in token.finditer(text):
        word = found.group()
        if not word.startswith(("//", "/*")):
            continue
        line = text.count("\n", 0, found.start()) + 1
        own_line = text[text.rfind("\n", 0, found.start()) + 1:found.start()].strip() == ""
        if word.startswith("//"):
            if block and own_line and line == last + 1:
                block.append(word[2:].strip())
            else:
                if block:
                    yield begin, block
                block, begin = [word[2:].strip()], line
            last = line
        else:
            if block:
                yield begin, block
                block = []
            yield line, [re.sub(r"^\s*\*+ ?", "", part).strip()
                         for part in word[2:-2].splitlines()]
    if block:
        yield begin, block


def hash_comments(text):
    block, begin = [], 0
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"\s*#(?!!) ?(.*)", line)
        if found:
            if not block:
                begin = number
            block.append(found.group(1))
        elif block:
            yield begin, block
            block = []
    if block:
        yield begin, block


def python_comments(text):
    yield from hash_comments(text)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, IndentationError):
        return
    before = tokenize.NEWLINE
    for t in tokens:
        if t.type == tokenize.STRING and t.string.lstrip("rf").startswith('"""') and before in (
                tokenize.NEWLINE, tokenize.INDENT, tokenize.ENCODING, tokenize.NL):
            yield t.start[0], t.string.strip('rf"').splitlines()
        if t.type != tokenize.COMMENT:
            before = t.type


def markdown_paragraphs(text):
    block, begin, fenced = [], 0, False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            line = ""
        if fenced or line.startswith("    ") and not block:
            line = ""
        if line.startswith("|"):
            for cell in line.strip("|").split("|"):
                yield number, [cell.strip()]
            line = ""
        if line.startswith("#"):  # a heading is no sentence
            line = ""
        item = re.match(r"\s*(?:[-*]|\d+\.)\s+(.*)", line)
        if block and (item or not line.strip()):
            yield begin, block
            block = []
        if line.strip():
            if not block:
                begin = number
            block.append(item.group(1) if item else line.strip())
    if block:
        yield begin, block


def paragraphs(path, text):
    """(line, text) of each paragraph of prose; a paragraph ends at an empty line."""
    suffix = pathlib.Path(path).suffix
    if suffix in (".cc", ".h", ".c", ".cu", ".def"):
        blocks = cpp_comments(text)
    elif suffix == ".py":
        blocks = python_comments(text)
    elif suffix == ".md":
        blocks = markdown_paragraphs(text)
    elif suffix in HASH_COMMENTS or text.startswith("#!"):
        blocks = hash_comments(text)
    else:
        return
    for begin, lines in blocks:
        part, at = [], begin
        for offset, line in enumerate(lines + [""]):
            # Indented lines are code, figures or tables.
            if line.strip() and not line.startswith(("   ", "//")):
                if not part:
                    at = begin + offset
                part.append(line.strip())
            elif part:
                yield at, " ".join(part)
                part = []


def findings(text):
    """(rule, excerpt) of one paragraph."""
    if "clang-format" in text or "NOLINT" in text:
        return
    opening = re.match(r"([A-Z]\w*)\b", text)
    if opening and opening.group(1) in OPENINGS and not text.rstrip().endswith("?"):
        yield f'begins with "{opening.group(1)}"; begin with the subject', text[:80]
    plain = re.sub(r"`[^`]*`|\"[^\"]*\"", "`x`", text)
    for pattern, advice in PHRASES.items():
        for found in re.finditer(pattern, plain):
            yield advice, plain[max(0, found.start() - 30):found.end() + 30]
    for sentence in re.split(r"(?<=[.!?;:])\s+", plain):
        words = [w for w in sentence.split() if re.search(r"\w", w)]
        if len(words) > MOST_WORDS:
            yield f"{len(words)} words; at most {MOST_WORDS}", sentence[:80]


def main(arguments):
    files = arguments or subprocess.run(["git", "ls-files"], capture_output=True, text=True,
                                        check=True).stdout.split()
    found = 0
    for name in files:
        if name.endswith("cmake/prose.py"):
            continue
        try:
            text = pathlib.Path(name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, IsADirectoryError):
            continue
        for line, paragraph in paragraphs(name, text):
            for rule, excerpt in findings(paragraph):
                print(f"{name}:{line}: {rule}: {excerpt}")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
