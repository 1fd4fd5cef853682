/* A profiler in the style of an LD_PRELOAD library above NCCL: counts some calls, forwards them to
 * the next library, and prints the counts at the end of each process that made any. With
 * PROFILER_PNCCL set, the calls are forwarded to the pncclX names instead. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rewire_nccl_api.h"

#define EXPORT __attribute__((visibility("default")))

static int inits = 0;
static int all_reduces = 0;

static void* next(const char* name) {
  char text[64];
  void* found;
  snprintf(text, sizeof text, "%s%s", getenv("PROFILER_PNCCL") == NULL ? "" : "p", name);
  found = dlsym(RTLD_NEXT, text);
  if (found == NULL) {
    fprintf(stderr, "profiler: %s: %s\n", text, dlerror());
    abort();
  }
  return found;
}

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  __typeof__(&ncclCommInitRank) function;
  void* found = next("ncclCommInitRank");
  memcpy(&function, &found, sizeof function);
  ++inits;
  return function(comm, nranks, commId, rank);
}

EXPORT ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                  ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                  cudaStream_t stream) {
  __typeof__(&ncclAllReduce) function;
  void* found = next("ncclAllReduce");
  memcpy(&function, &found, sizeof function);
  ++all_reduces;
  return function(sendbuff, recvbuff, count, datatype, op, comm, stream);
}

__attribute__((destructor)) static void report(void) {
  if (inits + all_reduces == 0) return;
  fprintf(stderr, "profiler: %d inits, %d all-reduces\n", inits, all_reduces);
}
