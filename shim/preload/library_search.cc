#include "shim/preload/library_search.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "reconfig/base/log.h"

namespace rewire::shim {

namespace {

std::string RealPath(const std::string& path) {
  char out[PATH_MAX];
  return realpath(path.c_str(), out) == nullptr ? std::string() : std::string(out);
}

bool SameFile(const std::string& a, const std::string& b) {
  struct stat x {};
  struct stat y {};
  return stat(a.c_str(), &x) == 0 && stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev &&
         x.st_ino == y.st_ino;
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }
std::string Folder(const std::string& path) { return path.substr(0, path.rfind('/')); }

bool LooksLikeNccl(const std::string& path) { return BaseName(path).rfind("libnccl.so", 0) == 0; }

// The relevant properties of a loaded object.
struct Object {
  std::string path;
  bool needs_nccl = false;
  std::string rpath;    // DT_RPATH; the loader ignores it beside a DT_RUNPATH
  std::string runpath;  // DT_RUNPATH
};

Object Describe(const dl_phdr_info& info) {
  Object object;
  object.path = info.dlpi_name != nullptr && info.dlpi_name[0] != '\0' ? info.dlpi_name
                                                                       : RealPath("/proc/self/exe");
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type == PT_DYNAMIC) {
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
    }
  }
  if (dynamic == nullptr) return object;
  ElfW(Addr) strings = 0;
  for (const ElfW(Dyn)* d = dynamic; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_STRTAB) strings = d->d_un.d_ptr;
  }
  if (strings == 0) return object;
  // glibc relocates this address in place, except in the vdso.
  if (strings < info.dlpi_addr) strings += info.dlpi_addr;
  const auto* text = reinterpret_cast<const char*>(strings);
  for (const ElfW(Dyn)* d = dynamic; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_NEEDED && strcmp(text + d->d_un.d_val, kNcclSoname) == 0) {
      object.needs_nccl = true;
    } else if (d->d_tag == DT_RPATH) {
      object.rpath = text + d->d_un.d_val;
    } else if (d->d_tag == DT_RUNPATH) {
      object.runpath = text + d->d_un.d_val;
    }
  }
  if (!object.runpath.empty()) object.rpath.clear();
  return object;
}

std::vector<Object> LoadedObjects() {
  std::vector<Object> objects;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        static_cast<std::vector<Object>*>(out)->push_back(Describe(*info));
        return 0;
      },
      &objects);
  return objects;
}

// Returns whether the loaded object itself exports NCCL's functions. Such an object has NCCL linked
// into it, and its own calls reach the shim.
bool ExportsNccl(const std::string& path) {
  void* const object = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (object == nullptr) return false;
  Dl_info info{};
  const void* const function = dlsym(object, "pncclGetVersion");
  const bool exports = function != nullptr && dladdr(function, &info) != 0 &&
                       info.dli_fname != nullptr && SameFile(info.dli_fname, path);
  dlclose(object);
  return exports;
}

class Candidates {
 public:
  void Add(const std::string& path) {
    const std::string real = RealPath(path);
    if (real.empty() || SameFile(real, OwnPath())) return;
    for (const std::string& f : found) {
      if (f == real) return;
    }
    found.push_back(real);
  }
  void AddFrom(const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) Add(folder + "/" + kNcclSoname);
  }
  std::vector<std::string> found;
};

}  // namespace

std::string OwnPath() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&OwnPath), &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  return RealPath(info.dli_fname);
}

std::vector<std::string> Folders(const std::string& list, const std::string& origin) {
  std::vector<std::string> folders;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(':', begin), list.size());
    std::string folder = list.substr(begin, end - begin);
    for (const char* token : {"$ORIGIN", "${ORIGIN}"}) {
      for (size_t at = folder.find(token); at != std::string::npos; at = folder.find(token)) {
        folder.replace(at, strlen(token), origin);
      }
    }
    if (!folder.empty()) folders.push_back(folder);
    begin = end + 1;
  }
  return folders;
}

std::vector<std::string> InLoaderCache(const std::string& cache_file, const std::string& name) {
  std::ifstream file(cache_file, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The cache keeps its texts as one table of strings. A path that ends in the name is an entry for
  // the name.
  std::vector<std::string> paths;
  const std::string wanted = "/" + name;
  for (size_t at = bytes.find(wanted); at != std::string::npos; at = bytes.find(wanted, at + 1)) {
    const size_t end = at + wanted.size();
    if (end < bytes.size() && bytes[end] != '\0') continue;
    const size_t begin = bytes.rfind('\0', at);
    if (begin == std::string::npos || bytes[begin + 1] != '/') continue;
    paths.push_back(bytes.substr(begin + 1, end - begin - 1));
  }
  return paths;
}

std::vector<std::string> FindNccl(std::vector<std::string>* searched) {
  Candidates candidates;
  const std::vector<Object> objects = LoadedObjects();
  for (const Object& object : objects) {
    if (LooksLikeNccl(object.path)) candidates.Add(object.path);
  }
  for (const Object& object : objects) {
    if (ExportsNccl(object.path)) candidates.Add(object.path);
  }
  // Without an object that needs NCCL, one of the objects has opened NCCL by its name.
  const bool opened = std::none_of(objects.begin(), objects.end(),
                                   [](const Object& object) { return object.needs_nccl; });
  // The loader searches DT_RPATH before LD_LIBRARY_PATH and DT_RUNPATH after it. The program's
  // DT_RPATH, which belongs to the first object, also counts for the dependencies of others.
  bool first = true;
  for (const Object& object : objects) {
    const bool searches = object.needs_nccl || opened;
    if (object.needs_nccl) {
      const std::string& path = object.runpath.empty() ? object.rpath : object.runpath;
      searched->push_back("RPATH of " + object.path + ": " + (path.empty() ? "none" : path));
    }
    if (searches || first) candidates.AddFrom(Folders(object.rpath, Folder(object.path)));
    first = false;
  }
  const char* library_path = getenv("LD_LIBRARY_PATH");
  searched->push_back(std::string("LD_LIBRARY_PATH: ") +
                      (library_path == nullptr ? "not set" : library_path));
  if (library_path != nullptr) candidates.AddFrom(Folders(library_path, ""));
  for (const Object& object : objects) {
    if (!object.needs_nccl && !opened) continue;
    candidates.AddFrom(Folders(object.runpath, Folder(object.path)));
  }
  searched->push_back("/etc/ld.so.cache");
  for (const std::string& path : InLoaderCache("/etc/ld.so.cache", kNcclSoname)) {
    candidates.Add(path);
  }
  const std::vector<std::string> standard = {"/lib/x86_64-linux-gnu",
                                             "/usr/lib/x86_64-linux-gnu",
                                             "/lib/aarch64-linux-gnu",
                                             "/usr/lib/aarch64-linux-gnu",
                                             "/lib64",
                                             "/usr/lib64",
                                             "/lib",
                                             "/usr/lib"};
  searched->push_back("/lib, /usr/lib and their variants");
  candidates.AddFrom(standard);
  return candidates.found;
}

void WarnOfSecondLibrary(const char* real) {
  static std::atomic<bool> warned{false};
  if (warned.load(std::memory_order_relaxed)) return;
  const std::string own = OwnPath();
  for (const Object& object : LoadedObjects()) {
    if (!LooksLikeNccl(object.path) || SameFile(object.path, own) || SameFile(object.path, real)) {
      continue;
    }
    if (warned.exchange(true, std::memory_order_relaxed)) return;
    REWIRE_WARN("two NCCL libraries in one process: Rewire uses %s, and calls to %s bypass Rewire",
                real, object.path.c_str());
  }
}

}  // namespace rewire::shim
