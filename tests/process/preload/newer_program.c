/* A program that calls a function of an NCCL that is newer than Rewire: its own call, or, with an
 * argument, the call in the library of that name, which the program opens. */
#define _GNU_SOURCE /* dladdr, RTLD_DEFAULT */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "rewire_nccl_api.h"

ncclResult_t ncclOfNextYear(int* value);

#ifdef REWIRE_TEST_OPENS
static int next_year(const char* name) {
  typedef int (*Call)(void);
  Call call = NULL;
  void* library = dlopen(name, RTLD_LAZY);
  void* symbol = library == NULL ? NULL : dlsym(library, "call_next_year");
  if (symbol == NULL) {
    printf("%s\n", dlerror());
    return -1;
  }
  memcpy(&call, &symbol, sizeof call); /* a function pointer is not an object pointer in C */
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? call() : -1;
}
#else
static int next_year(const char* name) {
  int value = 0;
  (void)name;
  return ncclOfNextYear(&value) == ncclSuccess ? value : -1;
}
#endif

int main(int argc, char** argv) {
  Dl_info info;
  memset(&info, 0, sizeof info);
  printf("next year %d\n", next_year(argc > 1 ? argv[1] : ""));
  (void)dladdr(dlsym(RTLD_DEFAULT, "ncclAllReduce"), &info);
  printf("ncclAllReduce in %s\n", info.dli_fname);
  return 0;
}
