// The place of a benchmark's process in its job, and the process's device. For the programs that
// run under `rewire run`: a failure prints a line and ends the process. Call from the main thread.
#pragma once

#include "reconfig/base/cuda_driver.h"

namespace rewire::bench {

// Returns a variable that the launcher sets, such as RANK. Without it the process ends with 2.
int LaunchNumber(const char* program, const char* variable);
// Makes the device's primary context. A failure ends the process with kUnexpected (board.h). If the
// machine has fewer devices, the processes share them: NCCL refuses that within one host, so each
// gets an NCCL_HOSTID.
const CudaDriver* OpenDevice(const char* program, int device, CUcontext* context);

}  // namespace rewire::bench
