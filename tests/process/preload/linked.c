/* A program that needs libnccl.so.2 by its DT_NEEDED and finds it by its RUNPATH, as PyTorch does.
 */
#include <stdio.h>

#include "rewire_nccl_api.h"

int main(void) {
  int version = 0;
  const int result = (int)ncclGetVersion(&version);
  printf("version %d %d\n", result, version);
  return 0;
}
