#!/usr/bin/env python3
"""Part of `./dev lint`: no type name is defined twice in one namespace of the product.

Two types of one name in one namespace are one type for the linker, which keeps the members of
either. Types in unnamed namespaces and inside other types are left out.
"""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent
STRIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#[^\n]*', re.S | re.M)
NAMESPACE = re.compile(r"namespace\s*([\w:]*)\s*\Z")
ATTRIBUTE = r"(?:\[\[.*?\]\]|\w+\s*\((?:[^()]|\([^()]*\))*\)|[A-Z][A-Z0-9_]+(?=\s+\w))"
TYPE = re.compile(r"(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+"
                  rf"(?:{ATTRIBUTE}\s*)*(\w+)(?:\s+final)?\s*(?::[^:].*)?\Z", re.S)


def types(text):
    """The types that a file defines, with their namespaces: rewire::net::Device."""
    found = set()  # a file may define a type twice, in the branches of an #if
    scopes = []    # for each open brace: the name of its namespace ("" for extern "C"), or None
    since = 0    # where the text before the next brace begins
    text = STRIPPED.sub(" ", text)
    for brace in re.finditer(r"[{};]", text):
        head = text[since:brace.start()].strip()
        since = brace.end()
        if brace.group() == "}" and scopes:
            scopes.pop()
        if brace.group() != "{":
            continue
        namespace = NAMESPACE.search(head)
        if head.endswith("extern"):  # its "C" was stripped
            scopes.append("")
            continue
        named = None not in scopes
        if named and not namespace and (defined := TYPE.search(head)):
            found.add("::".join([*filter(None, scopes), defined.group(1)]))
        scopes.append(namespace.group(1) or None if namespace else None)
    return found


def main():
    listed = subprocess.run(["git", "ls-files", "--", "reconfig", "net_plugin", "shim"], cwd=ROOT,
                            check=True, capture_output=True, text=True).stdout.split()
    places = collections.defaultdict(list)
    for path in listed:
        if path.endswith((".cc", ".h")) and (ROOT / path).exists():
            for name in types((ROOT / path).read_text()):
                places[name].append(path)
    wrong = [f"{name} is defined in {' and in '.join(paths)}"
             for name, paths in sorted(places.items()) if len(paths) > 1]
    print("".join(f"{w}\n" for w in wrong), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
