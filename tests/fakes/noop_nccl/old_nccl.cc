// A nearly empty NCCL 2.19. Programs find a missing function in it, and one that has only its ncclX
// name.
#include "rewire_nccl_api.h"

extern "C" {
__attribute__((visibility("default"))) ncclResult_t pncclGetVersion(int* version) {
  *version = 21903;
  return ncclSuccess;
}
__attribute__((visibility("default"))) ncclResult_t ncclMemFree(void* /*pointer*/) {
  return ncclRemoteError;
}
}
