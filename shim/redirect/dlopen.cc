// librewire-dlopen.so: makes dlopen of any NCCL 2, by a path or without a version, open the shim.
// An opt-in second preloaded file, for programs that would otherwise open an NCCL beside the shim.
// Needs libc alone. Called on any thread, also before main().
//
// A path is redirected only when the loader opens the file and the file is an NCCL. All other
// calls, and all calls with REWIRE_DISABLE=1, get the loader's own answer.
//
// The real dlopen searches the RPATH of its caller, which is the object with the return address. So
// the call at the end is a jump, which leaves the program's return address in place.
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

namespace {

using Open = void* (*)(const char*, int);

constexpr char kNccl[] = "libnccl.so";

// True for "/opt/nccl/libnccl.so.2" and "libnccl.so", and not for a plugin, "libnccl-net.so", or
// another major version, "libnccl.so.3".
bool NamesNccl(const char* file) {
  const char* slash = strrchr(file, '/');
  const char* name = slash == nullptr ? file : slash + 1;
  const size_t length = sizeof kNccl - 1;
  if (strncmp(name, kNccl, length) != 0) return false;
  const char* version = name + length;
  return version[0] == '\0' ||
         (strncmp(version, ".2", 2) == 0 && (version[2] == '\0' || version[2] == '.'));
}

// Stores the real path of the file that contains the address. Returns false if there is none.
bool FileOf(const void* address, char (&path)[PATH_MAX]) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr &&
         realpath(info.dli_fname, path) != nullptr;
}

Open next = nullptr;       // the real dlopen
char shim[PATH_MAX] = {};  // the shim, which lies beside this file; empty: nothing is redirected

bool library_given = false;  // the user has set REWIRE_NCCL_LIBRARY

void Find() {
  next = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "dlopen"));
  const char* disable = getenv("REWIRE_DISABLE");
  if (disable != nullptr && strcmp(disable, "1") == 0) return;
  library_given = getenv("REWIRE_NCCL_LIBRARY") != nullptr;
  char own[PATH_MAX];
  if (!FileOf(reinterpret_cast<const void*>(&Find), own)) return;
  char* const slash = strrchr(own, '/');
  const char name[] = "/libnccl.so.2";
  if (slash == nullptr || static_cast<size_t>(slash - own) + sizeof name > sizeof own) return;
  memcpy(slash, name, sizeof name);
  if (realpath(own, shim) == nullptr) shim[0] = '\0';
}

// Returns whether the process has loaded an NCCL that is neither the shim nor this file.
bool HasOtherNccl(const char* path) {
  const auto visit = [](dl_phdr_info* object, size_t, void* named) {
    char real[PATH_MAX];
    if (object->dlpi_name == nullptr || !NamesNccl(object->dlpi_name) ||
        realpath(object->dlpi_name, real) == nullptr || strcmp(real, shim) == 0) {
      return 0;
    }
    return strcmp(real, static_cast<const char*>(named)) == 0 ? 0 : 1;
  };
  return dl_iterate_phdr(visit, const_cast<char*>(path)) != 0;
}

// Returns whether the loader opens the file with this mode and the file is an NCCL, which the shim
// then calls. If the shim calls another one, the file stays loaded, and the shim warns of it.
bool IsNccl(const char* path, int mode) {
  void* const library = next(path, (mode & RTLD_NOW) != 0 ? RTLD_NOW : RTLD_LAZY);
  if (library == nullptr) return false;
  if (dlsym(library, "ncclGetVersion") == nullptr) {
    dlclose(library);
    dlerror();  // the program must not find the error of this check
    return false;
  }
  if (library_given) {
    dlclose(library);
    return true;
  }
  setenv("REWIRE_NCCL_LIBRARY", path, 0);
  const char* const real = getenv("REWIRE_NCCL_LIBRARY");
  if (real != nullptr && strcmp(real, path) == 0 && !HasOtherNccl(path)) dlclose(library);
  return true;
}

// Returns the file to open instead. Not inlined: with its arrays in dlopen(), the call there could
// not be a jump.
__attribute__((noinline)) const char* Redirect(const char* file, int mode, const void* caller) {
  char path[PATH_MAX];
  if (shim[0] == '\0') return file;
  // The shim itself opens the real library by its path.
  if (FileOf(caller, path) && strcmp(path, shim) == 0) return file;
  if (strchr(file, '/') == nullptr) return shim;
  // For a path that is missing or no NCCL, the loader's answer is the program's answer.
  if (realpath(file, path) == nullptr) return file;
  if (strcmp(path, shim) == 0) return shim;
  if ((mode & RTLD_NOLOAD) == 0 && !IsNccl(path, mode)) return file;
  return shim;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* dlopen(const char* file,
                                                               int mode) noexcept {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, Find);
  if (file != nullptr && NamesNccl(file)) {
    file = Redirect(file, mode, __builtin_return_address(0));
  }
  return next(file, mode);
}
