/* A library that opens NCCL by its name and finds it by its own RUNPATH, as JAX's plugin does. */
#include <dlfcn.h>
#include <stddef.h>

__attribute__((visibility("default"))) void* find_nccl(const char* name) {
  static void* library = NULL;
  if (library == NULL) library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  return library == NULL ? NULL : dlsym(library, name);
}
