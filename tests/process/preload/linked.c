/* A program that needs libnccl.so.2 by its DT_NEEDED and finds it by its RUNPATH, as PyTorch does.
 * With an argument, it also opens that library, which only its RUNPATH finds. */
#include <dlfcn.h>
#include <stdio.h>

#include "rewire_nccl_api.h"

int main(int argc, char** argv) {
  int version = 0;
  const int result = (int)ncclGetVersion(&version);
  printf("version %d %d\n", result, version);
  if (argc > 1) printf("neighbour %d\n", dlopen(argv[1], RTLD_NOW) != NULL);
  return 0;
}
