/* A library that needs libnccl.so.2, in the style of a Python extension: opened RTLD_LOCAL, with a
 * RUNPATH to the folder of the real library. */
#include <stddef.h>
#include <string.h>

#include "rewire_nccl_api.h"

/* Returns the function that this library is linked to. */
__attribute__((visibility("default"))) void* find_nccl(const char* name) {
#define FUNCTION(function)                      \
  if (strcmp(name, #function) == 0) {           \
    __typeof__(&function) address_ = &function; \
    void* out_;                                 \
    memcpy(&out_, &address_, sizeof out_);      \
    return out_;                                \
  }
  FUNCTION(ncclGetVersion)
  FUNCTION(ncclGetUniqueId)
  FUNCTION(ncclCommInitRank)
  FUNCTION(ncclAllReduce)
  FUNCTION(ncclCommDestroy)
  FUNCTION(ncclGetLastError)
#undef FUNCTION
  return NULL;
}
