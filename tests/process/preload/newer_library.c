/* A library that calls a function of an NCCL that is newer than Rewire. */
#include "rewire_nccl_api.h"

ncclResult_t ncclOfNextYear(int* value);
__attribute__((visibility("default"))) int call_next_year(void);

int call_next_year(void) {
  int value = 0;
  return ncclOfNextYear(&value) == ncclSuccess ? value : -1;
}
