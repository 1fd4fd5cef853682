/* A program that finds NCCL by dlopen("libnccl.so.2"), as JAX and vLLM do. Each argument is one
 * step; each prints one line. from=FILE: the steps that follow use the library FILE instead. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rewire_nccl_api.h"

static void* library;

static void* find(const char* name) {
  if (library == NULL) library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  void* symbol = library == NULL ? NULL : dlsym(library, name);
  if (symbol == NULL) {
    printf("%s\n", dlerror());
    exit(9);
  }
  return symbol;
}

/* Function pointers are not object pointers in C. */
#define CALL(type, name)                 \
  type name;                             \
  {                                      \
    void* found_ = find(#name);          \
    memcpy(&name, &found_, sizeof name); \
  }

typedef ncclResult_t (*InitFn)(ncclComm_t*, int, ncclUniqueId, int);
typedef ncclResult_t (*CommFn)(ncclComm_t);
typedef ncclResult_t (*VersionFn)(int*);
typedef ncclResult_t (*RevokeFn)(ncclComm_t, int);
typedef ncclResult_t (*FreeFn)(void*);

static void step(const char* what) {
  if (strcmp(what, "where") == 0) {
    Dl_info info;
    memset(&info, 0, sizeof info);
    dladdr(find("ncclAllReduce"), &info);
    printf("where %s\n", info.dli_fname);
  } else if (strcmp(what, "version") == 0) {
    int version = 0;
    CALL(VersionFn, ncclGetVersion)
    const int result = (int)ncclGetVersion(&version);
    printf("version %d %d\n", result, version);
  } else if (strcmp(what, "init") == 0) {
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    unsigned long long first = 0;
    memset(&id, 0, sizeof id);
    CALL(InitFn, ncclCommInitRank)
    const int result = (int)ncclCommInitRank(&comm, 1, id, 0);
    if (comm != NULL) memcpy(&first, comm, sizeof first);
    printf("init %d %llx\n", result, first);
    if (comm != NULL) {
      CALL(CommFn, ncclCommDestroy)
      printf("destroy %d\n", (int)ncclCommDestroy(comm));
    }
  } else if (strcmp(what, "revoke") == 0) {
    unsigned long long nothing[16];
    memset(nothing, 0, sizeof nothing);
    CALL(RevokeFn, ncclCommRevoke)
    printf("revoke %d\n", (int)ncclCommRevoke((ncclComm_t)(void*)nothing, 0));
  } else if (strcmp(what, "free") == 0) {
    CALL(FreeFn, ncclMemFree)
    printf("free %d\n", (int)ncclMemFree(NULL));
  } else if (strcmp(what, "refcount") == 0) {
    const char* value = getenv("NCCL_NET_PLUGIN_REF_COUNT");
    printf("refcount %s\n", value == NULL ? "unset" : value);
  } else if (strncmp(what, "from=", 5) == 0) { /* the library for the steps that follow */
    library = dlopen(what + 5, RTLD_NOW | RTLD_LOCAL);
    printf("opened %d %s\n", library != NULL, library != NULL ? "" : dlerror());
  } else { /* a path: loaded as it is */
    printf("loaded %d\n", dlopen(what, RTLD_NOW | RTLD_LOCAL) != NULL);
  }
  fflush(stdout);
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) step(argv[i]);
  return 0;
}
