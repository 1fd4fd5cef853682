// librewire-dlopen.so: makes dlopen of any libnccl.so, by a path or without a version, open the
// shim. An opt-in second preloaded file, for programs that would otherwise open an NCCL beside the
// shim. Needs libc alone. Called on any thread, also before main().
//
// The real dlopen searches the RPATH of its caller, which is the object with the return address. So
// the call at the end is a jump, which leaves the program's return address in place.
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

namespace {

using Open = void* (*)(const char*, int);

constexpr char kNccl[] = "libnccl.so";

// True for "/opt/nccl/libnccl.so.2" and "libnccl.so", and not for a plugin, "libnccl-net.so".
bool NamesNccl(const char* file) {
  const char* slash = strrchr(file, '/');
  const char* name = slash == nullptr ? file : slash + 1;
  const size_t length = sizeof kNccl - 1;
  return strncmp(name, kNccl, length) == 0 && (name[length] == '\0' || name[length] == '.');
}

// Stores the real path of the file that contains the address. Returns false if there is none.
bool FileOf(const void* address, char (&path)[PATH_MAX]) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr &&
         realpath(info.dli_fname, path) != nullptr;
}

Open next = nullptr;       // the real dlopen
char shim[PATH_MAX] = {};  // the shim, which lies beside this file; empty: it does not

void Find() {
  next = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "dlopen"));
  char own[PATH_MAX];
  if (!FileOf(reinterpret_cast<const void*>(&Find), own)) return;
  char* const slash = strrchr(own, '/');
  const char name[] = "/libnccl.so.2";
  if (slash == nullptr || static_cast<size_t>(slash - own) + sizeof name > sizeof own) return;
  memcpy(slash, name, sizeof name);
  if (realpath(own, shim) == nullptr) shim[0] = '\0';
}

// Returns the file to open instead. Not inlined: with its arrays in dlopen(), the call there could
// not be a jump.
__attribute__((noinline)) const char* Redirect(const char* file, const void* caller) {
  char path[PATH_MAX];
  if (shim[0] == '\0') return file;
  // The shim itself opens the real library by its path.
  if (FileOf(caller, path) && strcmp(path, shim) == 0) return file;
  // The file that the program names is the real library.
  if (strchr(file, '/') != nullptr && realpath(file, path) != nullptr && strcmp(path, shim) != 0) {
    setenv("REWIRE_NCCL_LIBRARY", path, 0);
  }
  return shim;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* dlopen(const char* file,
                                                               int mode) noexcept {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, Find);
  if (file != nullptr && NamesNccl(file)) file = Redirect(file, __builtin_return_address(0));
  return next(file, mode);
}
