// A nearly empty NCCL 2.19. It lacks functions and has ncclMemFree under its ncclX name alone. It
// also has two functions that no release has; the name of one marks it as internal.
#include "rewire_nccl_api.h"

extern "C" {
__attribute__((visibility("default"))) ncclResult_t pncclGetVersion(int* version) {
  *version = 21903;
  return ncclSuccess;
}
__attribute__((visibility("default"))) ncclResult_t ncclMemFree(void* /*pointer*/) {
  return ncclRemoteError;
}
__attribute__((visibility("default"))) ncclResult_t ncclOfTomorrow(ncclComm_t /*comm*/) {
  return ncclSuccess;
}
__attribute__((visibility("default"))) void ncclOfTomorrowInternal() {}
}
