#!/usr/bin/env python3
"""Makes and runs builds of NCCL's own host code that need no GPU, in the cache folder (README.md).

    nccl_host.py build CHECKOUT [--build BUILD] [-j N]   build the NCCL of a checkout
    nccl_host.py list                                    list the folders, oldest version first
    nccl_host.py each [--build BUILD] [DIR] -- COMMAND   run a command on every build, or on DIR
    nccl_host.py all [--build BUILD] [DIR] -- COMMAND    run a command once, for every build

BUILD is the project's own build folder (build/release). A folder LIBRARIES has the libraries of one
NCCL build and of the tier. `each` sets NCCL_HOST_LIBRARIES, which `rewire run --sim` reads, to
LIBRARIES and replaces {version} in COMMAND. `all` replaces {libraries} by LIBRARIES[:LIBRARIES...].
Both set the environment that NCCL needs on one machine without GPUs, and exit with 77 if no build
exists.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
BUILDS = CACHE / "rewire" / "nccl"
LIBRARY = "libnccl.so.2"
SKIPPED = 77

# Ranks of one node communicate through shared memory: the simulated devices have neither NVLink nor
# NCCL's virtual memory.
ENVIRONMENT = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_CUMEM_HOST_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_IB_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_ALGO": "RING,TREE",
}

HOST_RULES = """\
include Makefile
# Without debug information and with few optimisations the build takes a third of the time.
CXXFLAGS := $(filter-out -O3 -g,$(CXXFLAGS)) -O1 -g1 -w
NCCL_HOST_INCLUDES := -I. -I$(INCDIR) -I$(OBJDIR)/include -Iinclude -I$(INCPLUGIN) \\
  -I$(DOCA_HOME)/include
$(OBJDIR)/%.o : %.cc $(INCTARGETS)
\tmkdir -p $(dir $@)
\t$(CXX) $(NCCL_HOST_INCLUDES) $(CXXFLAGS) -c $< -o $@
$(DOCA_OBJDIR)/%.o : $(DOCA_HOME)/src/%.cpp
\tmkdir -p $(dir $@)
\t$(CXX) -I$(DOCA_HOME)/src -I$(DOCA_HOME)/include $(CXXFLAGS) -c $< -o $@
nccl_host_objects: $(INCTARGETS) $(GIT_VERSION_FILE) $(LIBOBJ)
\t@echo $(LIBOBJ) > $(BUILDDIR)/objects
nccl_host_flags: $(INCTARGETS)
\t@echo $(CXX) $(NCCL_HOST_INCLUDES) -Idevice $(CXXFLAGS) > $(BUILDDIR)/compile
"""

ONE_RANK = """
ncclResult_t ncclLaunchOneRank(void* target, void const* source, size_t count,
                               struct ncclDevRedOpFull op, ncclDataType_t type,
                               cudaStream_t stream) {
  const size_t bytes = count * ncclTypeSize(type);
  cudaError_t error = cudaSuccess;
  if (op.op == ncclDevPreMulSum) {
    error = rewireScaleElements(target, source, count, type, op.scalarArg, op.scalarArgIsPtr, stream);
  } else if (target != source) {
    error = cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, stream);
  }
  return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
"""


def fail(text):
    sys.exit(f"nccl_host: {text}")


def version_of(checkout):
    """Returns the version of a checkout as (major, minor, patch)."""
    makefile = checkout / "makefiles" / "version.mk"
    if not makefile.is_file():
        fail(f"checkout={checkout}: makefiles/version.mk is missing (a checkout of NVIDIA/nccl)")
    found = dict(re.findall(r"NCCL_(MAJOR|MINOR|PATCH)\s*:=\s*(\d+)", makefile.read_text()))
    return tuple(int(found[part]) for part in ("MAJOR", "MINOR", "PATCH"))


def builds():
    """Returns the folders of the finished builds, oldest version first."""
    folders = [p for p in BUILDS.glob("*") if (p / LIBRARY).exists()]
    return sorted(folders, key=lambda p: [int(n) for n in re.findall(r"\d+", p.name)])


def run(command, log, **more):
    with open(log, "a", encoding="utf-8") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False, **more)
    if done.returncode != 0:
        tail = "".join(open(log, encoding="utf-8").readlines()[-20:])
        fail(f"{command[0]}: status={done.returncode}; the end of {log}:\n{tail}")


def kernels_source(generated, number):
    """Returns C++ that defines an empty host function for each kernel and registers it by name."""
    kernels = {}
    for path in [generated / "host_table.cc", *sorted((generated / "symmetric").glob("*.cc"))]:
        if path.is_file():
            found = re.findall(r"__global__ void (\w+)\((\w+) const\);", path.read_text())
            kernels.update(dict(found))
    kernels.setdefault("ncclDevKernel_Generic", "ncclDevKernelArgs4K")
    functions = {}
    table = (generated / "device_table.cu").read_text()
    for index, name in re.findall(r"/\*\s*(\d+)\*/ (ncclDevFunc_\w+),", table):
        functions[int(index)] = name
    names = [functions.get(i, "") for i in range(max(functions) + 1)]
    lines = ['#include "device.h"', '#include "sym_kernels.h"', '#include "comm.h"',
             '#include "enqueue.h"', '#include "tests/nccl_host/runtime/kernel_table.h"']
    lines += [f"void {name}({argument} const) {{}}" for name, argument in kernels.items()]
    lines += ["static const char* const functions[] = {",
              *(f'  "{name}",' for name in names), "};",
              "static RewireKernelTable table = "
              f"{{kRewireKernelTable, {number}, functions, {len(names)}}};",
              "__attribute__((constructor)) static void RegisterKernels() {",
              "  void** const handle = __cudaRegisterFatBinary(&table);"]
    lines += [f'  __cudaRegisterFunction(handle, (const char*)(void*)&{name}, 0, "{name}", -1, 0, 0,'
              " 0, 0, 0);" for name in kernels]
    lines += ["  __cudaRegisterFatBinaryEnd(handle);", "}"]
    return "\n".join(lines) + ONE_RANK


def build(arguments):
    checkout = pathlib.Path(arguments.checkout).resolve()
    major, minor, patch = version_of(checkout)
    name = f"{major}.{minor}.{patch}"
    number = major * 10000 + minor * 100 + patch
    runtime = pathlib.Path(arguments.build).resolve() / "nccl_host"
    cudart = next(iter(sorted(runtime.glob("libcudart.so.*"))), None)
    if cudart is None:
        fail(f"{runtime}: libcudart.so is missing (./dev nccl-host builds it where CUDA's headers are)")
    cuda = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    header = (cuda / "include" / "cuda_runtime_api.h")
    cuda_version = int(re.search(r"define CUDART_VERSION\s+(\d+)", header.read_text())[1])
    out = BUILDS / name
    work = out / "work"
    generated = work / "generated"
    (generated / "symmetric").mkdir(parents=True, exist_ok=True)
    log = work / "build.log"
    log.write_text("")
    (work / "host.mk").write_text(HOST_RULES)
    compiler = os.environ.get("CXX", "g++")
    if shutil.which("ccache"):
        compiler = "ccache " + compiler
    print(f"NCCL {name} of {checkout} into {out} (log: {log})", file=sys.stderr)
    source = checkout / "src"
    make = ["make", "-f", str(work / "host.mk"), f"-j{arguments.jobs}", f"BUILDDIR={work}",
            "CUDARTLIB=cudart", f"CUDA_HOME={cuda}", f"CXX={compiler}",
            f"CUDA_MAJOR={cuda_version // 1000}", f"CUDA_MINOR={cuda_version % 1000 // 10}",
            "CXXSTD=-std=c++17"]
    run(make + ["nccl_host_flags", "nccl_host_objects"], log, cwd=source)
    run([sys.executable, "device/generate.py", str(generated)], log, cwd=source)
    if (source / "device" / "symmetric" / "generate.py").is_file():
        run([sys.executable, "device/symmetric/generate.py", str(generated / "symmetric")], log,
            cwd=source)
    (generated / "kernels.cc").write_text(kernels_source(generated, number))
    compile_one = (work / "compile").read_text().split()
    objects = (work / "objects").read_text().split()
    check = f"-DNCCL_HOST_VERSION={number}"
    sources = [generated / "kernels.cc", generated / "host_table.cc", HERE / "layout_check.cc",
               *sorted((generated / "symmetric").glob("*.cc"))]
    for path in sources:
        objects.append(str(work / (path.stem + ".own.o")))
        run(compile_one + [check, f"-I{SOURCE}", "-c", str(path), "-o", objects[-1]], log, cwd=source)
    library = work / LIBRARY
    link = ["g++", "-shared", "-Wl,--no-as-needed", f"-Wl,-soname,{LIBRARY}", "-o", str(library),
            *objects, str(cudart), f"-Wl,-rpath-link,{runtime}",
            f"-Wl,-rpath-link,{runtime.parent / 'simgpu'}", "-lpthread", "-lrt", "-ldl", "-Wl,-z,defs"]
    if (source / "libnccl.map").is_file():
        link.append("-Wl,--version-script=libnccl.map")
    run(link, log, cwd=source)
    shutil.copytree(work / "include", out / "include", dirs_exist_ok=True)
    os.replace(library, out / LIBRARY)
    print(out)


def together(build_folder, folder):
    """Makes and returns the folder with all libraries of one build."""
    tree = pathlib.Path(build_folder).resolve()
    parts = [folder / LIBRARY, *(tree / "nccl_host").glob("lib*.so.*"),
             tree / "simgpu" / "libcuda.so.1"]
    if not all(p.is_file() for p in parts) or len(parts) < 4:
        fail(f"build={tree}: libraries of the tier are missing (./dev build)")
    libraries = tree / "nccl_host" / "on" / folder.name
    libraries.mkdir(parents=True, exist_ok=True)
    for part in parts:
        link = libraries / part.name
        if not link.is_symlink() or os.readlink(link) != str(part):
            temporary = link.with_name(f"{part.name}.{os.getpid()}")
            os.symlink(part, temporary)
            os.replace(temporary, link)
    return str(libraries)


def run_each(chosen, build_folder, program, environment):
    """Runs a program on each build; returns the first status that is not 0."""
    first = 0
    for folder in chosen:
        print(f"== NCCL {folder.name}", file=sys.stderr, flush=True)
        command = [word.replace("{version}", folder.name) for word in program]
        here = {**environment, "NCCL_HOST_LIBRARIES": together(build_folder, folder)}
        status = subprocess.run(command, env=here, check=False).returncode
        first = first or status
    return first


def folder_of(text):
    folder = pathlib.Path(text).resolve()
    if not (folder / LIBRARY).exists():
        fail(f"{folder}: {LIBRARY} is missing (a folder that `nccl_host.py list` names)")
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    tree = SOURCE / "build" / "release"
    one = commands.add_parser("build")
    one.add_argument("checkout")
    one.add_argument("--build", default=tree)
    one.add_argument("-j", dest="jobs", default=os.cpu_count())
    commands.add_parser("list")
    for name in ("each", "all"):
        on = commands.add_parser(name)
        on.add_argument("--build", default=tree)
        on.add_argument("folder", nargs="?")
        on.add_argument("--test", action="store_true", help="the folder is in NCCL_HOST_BUILD")
    own, program = sys.argv[1:], []
    if "--" in own:
        own, program = own[:own.index("--")], own[own.index("--") + 1:]
    arguments = parser.parse_args(own)
    if arguments.command == "build":
        return build(arguments)
    if arguments.command == "list":
        return print("\n".join(str(p) for p in builds()))
    if not program:
        fail("no command; write it after --")
    given = arguments.folder
    if arguments.test:
        given = os.environ.get("NCCL_HOST_BUILD")
        if not given:
            print("skipped: ./dev test --nccl runs it")
            return sys.exit(SKIPPED)
        given = None if given == "all" else given
    chosen = [folder_of(given)] if given else builds()
    if not chosen:
        print(f"skipped: no build of NCCL's host code in {BUILDS} (./dev nccl-host CHECKOUT)")
        return sys.exit(SKIPPED)
    environment = {**ENVIRONMENT, **os.environ}
    if arguments.command == "each":
        return sys.exit(run_each(chosen, arguments.build, program, environment))
    libraries = ":".join(together(arguments.build, folder) for folder in chosen)
    command = [word.replace("{libraries}", libraries) for word in program]
    return os.execvpe(command[0], command, environment)


if __name__ == "__main__":
    main()
