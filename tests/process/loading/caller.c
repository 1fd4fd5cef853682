/* A small NCCL program of several processes that comes to NCCL in a chosen way: caller RANKS
 * STEP... Each rank prints one line with the results of its collectives and whether its
 * communicator is Rewire's. The steps of a way are taken in their order.
 *
 * - open=FILE: dlopen of FILE. The functions are found with its handle.
 * - extension=FILE: dlopen of FILE, RTLD_LOCAL, as Python opens an extension that needs NCCL.
 * - default: the functions are found with RTLD_DEFAULT.
 * - version=NAME: the functions are found by dlvsym.
 * - prefix=p: the functions have the names pncclX.
 * - also=FILE: dlopen of FILE before the communicator is destroyed.
 * - child=fork: a forked child uses its parent's communicator and ends by exit(), between two
 * rounds.
 * - child=exec: a child runs this program with one rank and the same way, between two rounds.
 * - child=endless: as child=exec, but the child continues until a call fails.
 * - child=none: the rounds continue until a call fails.
 * - child=worker: NCCL is called before the rank's process is forked.
 *
 * A program with its own find_nccl(), because NCCL is linked into it, needs no step. */
#define _GNU_SOURCE /* RTLD_DEFAULT, dlvsym */
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rewire_nccl_api.h"

enum { kElements = 1000, kRounds = 8, kMostRanks = 8 };
static const uint64_t kMagic = 0x5245574952450001ULL;

static void* handle = NULL;
#ifdef CALLER_HAS_NCCL
void* find_nccl(const char* name);
static void* (*finder)(const char* name) = find_nccl;
#else
static void* (*finder)(const char* name) = NULL;
#endif
static const char* version = NULL;
static const char* prefix = "";
static const char* also = NULL;
static const char* child = "";
static int rounds = kRounds;
static char** arguments = NULL;

static void fail(const char* what, const char* why) {
  printf("%s: %s\n", what, why == NULL ? "failed" : why);
  exit(9);
}

static void* open_library(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fail(file, dlerror());
  return library;
}

static void* find(const char* name) {
  char text[64];
  void* symbol;
  snprintf(text, sizeof text, "%s%s", prefix, name);
  if (finder != NULL) {
    symbol = finder(text);
  } else if (version != NULL) {
    symbol = dlvsym(handle, text, version);
  } else {
    symbol = dlsym(handle, text);
  }
  if (symbol == NULL) fail(text, "not found");
  return symbol;
}

/* Function pointers are not object pointers in C. */
#define CALL(name, ...)                            \
  do {                                             \
    __typeof__(&name) function_;                   \
    void* found_ = find(#name);                    \
    memcpy(&function_, &found_, sizeof function_); \
    if (function_(__VA_ARGS__) != ncclSuccess) {   \
      fail(#name, last_error());                   \
    }                                              \
  } while (0)

static const char* last_error(void) {
  const char* (*function)(ncclComm_t);
  void* found = find("ncclGetLastError");
  memcpy(&function, &found, sizeof function);
  return function(NULL);
}

static void parse_steps(int count, char** steps) {
  for (int i = 0; i < count; ++i) {
    const char* value = strchr(steps[i], '=');
    value = value == NULL ? "" : value + 1;
    if (strncmp(steps[i], "open=", 5) == 0) {
      handle = open_library(value);
    } else if (strncmp(steps[i], "extension=", 10) == 0) {
      void* entry = dlsym(open_library(value), "find_nccl");
      if (entry == NULL) fail(value, dlerror());
      memcpy(&finder, &entry, sizeof finder);
    } else if (strcmp(steps[i], "default") == 0) {
      handle = RTLD_DEFAULT;
    } else if (strncmp(steps[i], "version=", 8) == 0) {
      version = value;
    } else if (strncmp(steps[i], "prefix=", 7) == 0) {
      prefix = value;
    } else if (strncmp(steps[i], "also=", 5) == 0) {
      also = value;
    } else if (strncmp(steps[i], "child=", 6) == 0) {
      child = value;
      if (strcmp(child, "none") == 0) rounds = INT_MAX;
    } else {
      fail(steps[i], "unknown step");
    }
  }
}

/* The driver's functions by their documented names. */
static void* driver_function(const char* name) {
  static void* driver = NULL;
  void* symbol;
  if (driver == NULL) driver = open_library("libcuda.so.1");
  symbol = dlsym(driver, name);
  if (symbol == NULL) fail(name, dlerror());
  return symbol;
}

#define CUDA(name, types, ...)                      \
  do {                                              \
    int(*function_) types;                          \
    void* found_ = driver_function(name);           \
    memcpy(&function_, &found_, sizeof function_);  \
    if (function_(__VA_ARGS__) != 0) fail(name, 0); \
  } while (0)

/* A child between two rounds. Prints one line when it has ended. */
static void run_child(ncclComm_t comm, cudaStream_t stream, void* memory) {
  int status = 0;
  pid_t process;
  fflush(stdout);
  process = fork();
  if (process == 0 && strcmp(child, "fork") != 0) {
    char* own[16] = {arguments[0], "1", strcmp(child, "exec") == 0 ? "child=" : "child=none"};
    int count = 3;
    for (int i = 2; arguments[i] != NULL && count < 15; ++i) {
      if (strncmp(arguments[i], "child=", 6) != 0) own[count++] = arguments[i];
    }
    execv(own[0], own);
    _exit(8);
  }
  if (process == 0) {
    ncclResult_t (*all_reduce)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                               cudaStream_t);
    void* found = find("ncclAllReduce");
    memcpy(&all_reduce, &found, sizeof all_reduce);
    exit((int)all_reduce(memory, memory, kElements, ncclFloat, ncclSum, comm, stream));
  }
  waitpid(process, &status, 0);
  printf("child status %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void run_rank(int rank, int ranks, const ncclUniqueId* id) {
  void* context = NULL;
  cudaStream_t stream = NULL;
  uint64_t data = 0, magic = 0, hash = 1469598103934665603ULL;
  ncclComm_t comm = NULL;
  float values[kElements];
  CUDA("cuInit", (unsigned), 0);
  CUDA("cuDevicePrimaryCtxRetain", (void**, int), &context, rank);
  CUDA("cuCtxSetCurrent", (void*), context);
  CUDA("cuStreamCreate", (cudaStream_t*, unsigned), &stream, 1);
  CUDA("cuMemAlloc_v2", (uint64_t*, size_t), &data, sizeof values);
  CALL(ncclCommInitRank, &comm, ranks, *id, rank);
  memcpy(&magic, comm, sizeof magic);
  for (int round = 0; round < rounds; ++round) {
    void* const memory = (void*)(uintptr_t)data;
    const int has_child = *child != '\0' && strcmp(child, "none") != 0;
    if (round == kRounds / 2 && has_child) run_child(comm, stream, memory);
    for (int i = 0; i < kElements; ++i) {
      values[i] = (float)((i * 7 + rank * 13 + round * 3) % 101);
    }
    CUDA("cuMemcpyHtoD_v2", (uint64_t, const void*, size_t), data, values, sizeof values);
    CALL(ncclAllReduce, memory, memory, kElements, ncclFloat, ncclSum, comm, stream);
    CUDA("cuStreamSynchronize", (cudaStream_t), stream);
    CUDA("cuMemcpyDtoH_v2", (void*, uint64_t, size_t), values, data, sizeof values);
    for (int i = 0; i < kElements; ++i) {
      uint32_t bits;
      memcpy(&bits, &values[i], sizeof bits);
      hash = (hash ^ bits) * 1099511628211ULL;
    }
  }
  if (also != NULL) open_library(also);
  CALL(ncclCommDestroy, comm);
  printf("rank %d sum %016llx%s\n", rank, (unsigned long long)hash,
         magic == kMagic ? " virtual" : "");
  fflush(stdout);
}

int main(int argc, char** argv) {
  const int ranks = argc < 2 ? 0 : atoi(argv[1]);
  int ends[kMostRanks][2];
  pid_t children[kMostRanks];
  ncclUniqueId id;
  int bad = 0;
  arguments = argv;
  if (ranks < 1 || ranks > kMostRanks) return 2;
  /* Processes are forked first: a driver does not survive a fork. */
  for (int r = 1; r < ranks; ++r) {
    if (pipe(ends[r]) != 0) return 2;
    children[r] = fork();
    if (children[r] == 0) {
      close(ends[r][1]);
      if (read(ends[r][0], &id, sizeof id) != (ssize_t)sizeof id) return 3;
      parse_steps(argc - 2, argv + 2);
      run_rank(r, ranks, &id);
      return 0;
    }
    close(ends[r][0]);
  }
  parse_steps(argc - 2, argv + 2);
  if (strcmp(child, "worker") == 0) {
    int status = 0;
    pid_t worker;
    CALL(ncclGetVersion, &status);
    worker = fork();
    child = "";
    if (worker != 0) return waitpid(worker, &status, 0) == worker && status == 0 ? 0 : 4;
  }
  CALL(ncclGetUniqueId, &id);
  for (int r = 1; r < ranks; ++r) {
    if (write(ends[r][1], &id, sizeof id) != (ssize_t)sizeof id) return 2;
    close(ends[r][1]);
  }
  run_rank(0, ranks, &id);
  for (int r = 1; r < ranks; ++r) {
    int status = 0;
    waitpid(children[r], &status, 0);
    bad += status != 0;
  }
  return bad;
}
