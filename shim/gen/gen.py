#!/usr/bin/env python3
"""Makes the shim's generated files from the table of NCCL's functions.

Run by the build: gen.py --table nccl_functions.txt --out DIR [--check-include DIR]. With
--check-include the table is compared with the nccl.h (and nccl_device/*.h) in that folder. The
check fails on a function that the table lacks, on a different prototype, and on a function that the
header of that version lacks. Only files that changed are written.
"""

import argparse
import pathlib
import re
import sys
from dataclasses import dataclass

CLASSES = ("pass", "collective", "p2p", "handle", "written")
NOTICE = "// Made by shim/gen/gen.py from shim/gen/nccl_functions.txt.\n"


class TableError(Exception):
    """The faults of the table or the header, one complaint per line."""


@dataclass
class Parameter:
    type: str
    name: str


@dataclass
class Function:
    name: str
    since: tuple
    kind: str
    result: str
    parameters: list

    @property
    def declared(self):
        return ", ".join(join(p.type, p.name) for p in self.parameters) or "void"

    @property
    def passed(self):
        return ", ".join(p.name for p in self.parameters)

    def by_type(self, type_):
        return next((p.name for p in self.parameters if canonical(p.type) == type_), None)


def join(type_, name):
    return f"{type_} {name}"


def version(text):
    parts = [int(x) for x in text.split(".")]
    return tuple(parts + [0] * (3 - len(parts)))


def canonical(type_):
    """Returns equal texts for equal types: ignores spaces, `struct` and the place of const."""
    type_ = re.sub(r"\b(struct|enum|extern|__host__)\b", " ", type_)
    type_ = type_.replace("*", " * ")
    tokens = type_.split()
    if "*" in tokens:
        base, rest = tokens[: tokens.index("*")], tokens[tokens.index("*"):]
    else:
        # The const of a parameter that is passed by value is not part of the prototype.
        base, rest = [t for t in tokens if t != "const"], []
    # A struct and its typedef are the same type.
    base = [t[:-2] if t.startswith("nccl") and t.endswith("_t") else t for t in base]
    return " ".join(sorted(base, key=lambda t: t != "const") + rest)


KEYWORDS = {"const", "void", "int", "char", "unsigned", "size_t", "bool", "float", "struct"}


def split_parameter(text):
    text = " ".join(text.split())
    match = re.match(r"^(.*[\s*&])([A-Za-z_]\w*)$", text)
    if match and match.group(2) not in KEYWORDS and canonical(match.group(1)) not in ("", "const"):
        return Parameter(match.group(1).strip(), match.group(2))
    return Parameter(text, "")


def split_parameters(text):
    text = text.strip()
    if text in ("", "void"):
        return []
    return [split_parameter(p) for p in text.split(",")]


def read_table(path):
    functions, complaints = [], []
    line_form = re.compile(r"^(\w+) (2\.[\d.]+) (\w+) : (.+?) ?\((.*)\)$")
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = line_form.match(line)
        if not match:
            complaints.append(f"{path}:{number}: not 'NAME since CLASS : RETURN (PARAMETERS)'")
            continue
        name, since, kind, result, parameters = match.groups()
        function = Function(name, version(since), kind, result, split_parameters(parameters))
        if kind not in CLASSES:
            complaints.append(f"{path}:{number}: class {kind} is not one of {', '.join(CLASSES)}")
        if any(f.name == name for f in functions):
            complaints.append(f"{path}:{number}: nccl{name} is there twice")
        if any(not p.name for p in function.parameters):
            complaints.append(f"{path}:{number}: a parameter of nccl{name} has no name")
        if kind in ("collective", "p2p", "handle") and not function.by_type("ncclComm"):
            complaints.append(f"{path}:{number}: nccl{name} is {kind} without a communicator")
        functions.append(function)
    if complaints:
        raise TableError("\n".join(complaints))
    if not functions:
        raise TableError(f"{path}: no functions")
    return functions


def header_functions(include):
    """Returns {name: (result, [types], file)} of every host function that the headers declare."""
    files = [include / "nccl.h"]
    device = include / "nccl_device"
    if device.is_dir():
        files += sorted(device.glob("*.h"))
    found = {}
    for file in files:
        text = file.read_text(errors="replace")
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"//[^\n]*", " ", text)
        text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", " ", text, flags=re.M)
        text = re.sub(r'extern\s+"C"\s*\{?', " ", text)
        for match in re.finditer(r"([^;{}()]*?)\bp?nccl([A-Z]\w*)\s*\(([^()]*)\)\s*;", text):
            before, name, parameters = match.groups()
            words = before.split()
            if any("INLINE" in w or "DEVICE" in w for w in words) or not words:
                continue
            if any(w in ("return", "=") or w.endswith("=") for w in words):
                continue
            result = " ".join(w for w in words if w not in ("NCCL_EXTERN_C", "NCCL_IR_EXTERN_C"))
            types = [canonical(p.type) for p in split_parameters(parameters)]
            found[name] = (canonical(result), types, file)
    return found


def header_version(include):
    text = (include / "nccl.h").read_text(errors="replace")
    numbers = [re.search(rf"#define NCCL_{part} (\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
    if not all(numbers):
        raise TableError(f"{include / 'nccl.h'}: no NCCL_MAJOR, NCCL_MINOR and NCCL_PATCH")
    return tuple(int(n.group(1)) for n in numbers)


def check(functions, include):
    complaints = []
    known = {f.name: f for f in functions}
    there = header_functions(include)
    installed = header_version(include)
    for name, (result, types, file) in sorted(there.items()):
        if name not in known:
            complaints.append(
                f"{file}: nccl{name}({', '.join(types)}) is not in the table of NCCL's functions")
            continue
        function = known[name]
        mine = [canonical(p.type) for p in function.parameters]
        if canonical(function.result) != result or mine != types:
            complaints.append(
                f"{file}: nccl{name} is {result} ({', '.join(types)}) there and "
                f"{canonical(function.result)} ({', '.join(mine)}) in the table")
    device_headers = (include / "nccl_device").is_dir()
    for function in functions:
        if function.name in there or function.since > installed:
            continue
        host = not re.search(r"Team|DevComm|Requirement|LLA2A|DevicePointer|Properties",
                             function.name + function.declared)
        if host or device_headers:
            complaints.append(
                f"{include}: nccl{function.name} should be there since "
                f"{'.'.join(map(str, function.since))} and is not")
    if complaints:
        raise TableError("\n".join(complaints))


def api_header(functions):
    lines = ["// Prototypes of NCCL's host functions, for programs and stand-ins.\n", NOTICE,
             "#pragma once\n\n", '#include "shim/preload/nccl_api_types.h"\n\n',
             "#ifdef __cplusplus\nextern \"C\" {\n#endif\n"]
    for f in functions:
        lines += [f"{f.result} nccl{f.name}({f.declared});\n",
                  f"{f.result} pnccl{f.name}({f.declared});\n"]
    lines.append("#ifdef __cplusplus\n}\n#endif\n")
    return "".join(lines)


def members(functions):
    return NOTICE + "".join(f"{f.result} (*{f.name})({f.declared}) = nullptr;\n" for f in functions)


def function_list(functions):
    lines = [NOTICE, "// REWIRE_NCCL_FUNCTION(result, name, since, (parameters), (arguments))\n"]
    for f in functions:
        since = ".".join(map(str, f.since))
        lines.append(f'REWIRE_NCCL_FUNCTION({f.result}, {f.name}, "{since}", ({f.declared}), '
                     f"({f.passed}))\n")
    return "".join(lines)


def entries_header(functions):
    lines = ["// The entries that are written by hand (shim/preload/entries_*.cc).\n", NOTICE,
             "#pragma once\n\n", '#include "shim/preload/nccl_api_types.h"\n\n',
             "namespace rewire::shim::entry {\n\n"]
    for f in functions:
        if f.kind == "written":
            lines.append(f"{f.result} {f.name}({f.declared});\n")
    lines.append("\n}  // namespace rewire::shim::entry\n")
    return "".join(lines)


def entry_body(f):
    if f.kind == "written":
        return f"  return entry::{f.name}({f.passed});\n"
    if f.kind == "pass":
        return f"  return Real()->{f.name}({f.passed});\n"
    comm = f.by_type("ncclComm")
    arguments = []
    for p in f.parameters:
        if p.name == comm:
            arguments.append("target.comm")
        elif canonical(p.type) == "ncclRedOp":
            arguments.append(f"target.Operator({p.name})")
        else:
            arguments.append(p.name)
    call = (f"[&](const Target& target) {{\n"
            f"    return Functions().{f.name}({', '.join(arguments)});\n  }}")
    if f.kind == "handle":
        return f"  return Translate<{f.result}>({comm}, {call});\n"
    count = next(p.name for p in f.parameters if p.type == "size_t")
    which = f.name.removesuffix("Config")
    which = "Broadcast" if which == "Bcast" else which
    peer = "peer" if f.kind == "p2p" else "-1"
    return (f"  return Issue<Collective::k{which}>({comm}, stream, {count}, datatype, {peer}, "
            f"{call});\n")


def entries_source(functions):
    # Not noexcept: a thread that is cancelled inside NCCL unwinds through these functions.
    lines = ["// Every exported function.\n", NOTICE, '#include "rewire_entries.h"\n',
             '#include "shim/preload/issue.h"\n', '#include "shim/preload/real_nccl.h"\n',
             '#include "shim/preload/unknown_functions.h"\n\n',
             "using namespace rewire::shim;  // NOLINT: the entries are in no namespace\n\n",
             'extern "C" {\n\n']
    for f in functions:
        lines += [f'__attribute__((visibility("default"))) {f.result} nccl{f.name}({f.declared}) '
                  "{\n",
                  f"  if (Off()) [[unlikely]] return Real()->{f.name}({f.passed});\n",
                  entry_body(f), "}\n\n"]
    # A program that uses the profiling names holds handles that it made by either name, and a
    # profiler that interposes ncclX calls pncclX with the program's handles. So pncclX is the same
    # entry as ncclX. A call of ncclX would reach the profiler again; an alias does not.
    # dlsym on the real library's own handle never finds these aliases.
    lines.append("#ifdef REWIRE_PROFILING_NAMES\n")
    for f in functions:
        lines.append(f'__attribute__((visibility("default"), alias("nccl{f.name}"))) '
                     f"{f.result} pnccl{f.name}({f.declared});\n")
    # Distinguishes a second copy of this library from an NCCL.
    lines.append('__attribute__((visibility("default"))) int rewire_preload_marker = 1;\n')
    # Only this library, and not the static library of tests, does something when it is loaded.
    lines.append("// The loader binds a call of a function that this library lacks at its first use.\n"
                 "__attribute__((constructor)) static void OpenRealLibraryEarly() {\n"
                 "  if (UnknownFunctionNeeded()) (void)Real();\n}\n")
    lines.append("#endif\n\n")
    lines.append('}  // extern "C"\n')
    return "".join(lines)


def export_map(functions):
    names = "".join(f"    nccl{f.name};\n    pnccl{f.name};\n" for f in functions)
    return ("{\n  global:\n" + names + "    rewire_preload_marker;\n  local:\n    *;\n};\n")


OUTPUTS = {
    "rewire_nccl_api.h": api_header,
    "rewire_real_nccl_members.inc": members,
    "rewire_nccl_functions.inc": function_list,
    "rewire_entries.h": entries_header,
    "rewire_entries.cc": entries_source,
    "rewire_exports.map": export_map,
}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, help="folder for the generated files")
    parser.add_argument("--check-include", type=pathlib.Path, help="folder with an nccl.h")
    options = parser.parse_args(arguments)
    try:
        functions = read_table(options.table)
        if options.check_include:
            check(functions, options.check_include)
    except (TableError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        for name, make in OUTPUTS.items():
            file, text = options.out / name, make(functions)
            if not file.exists() or file.read_text() != text:
                file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
