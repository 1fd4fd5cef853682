// The do-nothing NCCL with one more function, as a release that is newer than Rewire has.
#include "rewire_nccl_api.h"

extern "C" {
__attribute__((visibility("default"))) ncclResult_t ncclOfNextYear(int* value) {
  *value = 31;
  // The library's own calls reach the shim, as NCCL's do.
  int version = 0;
  return ncclGetVersion(&version);
}
}
