// The text of the last error, as ncclGetLastError returns it, and NCCL's own log line (NCCL_DEBUG).
// The function that detects an error calls Fail; its callers propagate the error with SIMNCCL_TRY.
// Thread-safe.
#pragma once

#include "reconfig/abi/nccl_types.h"

namespace simnccl {

// Keeps the text, writes it to standard error when NCCL_DEBUG is WARN or more, returns `result`.
ncclResult_t Fail(ncclResult_t result, const char* format, ...)
    __attribute__((format(printf, 2, 3)));
// Prints a line at NCCL_DEBUG=INFO.
void Info(const char* format, ...) __attribute__((format(printf, 1, 2)));
const char* LastError();

}  // namespace simnccl

#define SIMNCCL_TRY(expr)                                     \
  do {                                                        \
    const ncclResult_t simnccl_result = (expr);               \
    if (simnccl_result != ncclSuccess) return simnccl_result; \
  } while (false)
