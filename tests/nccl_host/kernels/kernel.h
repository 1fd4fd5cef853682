// One of NCCL's kernels on the CPU: each block runs on its own thread, over the memory that NCCL's
// host code prepared. Called on a stream's thread of the simulated driver. Thread-safe: any number
// of kernels may run concurrently.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/nccl_host/kernels/function.h"

namespace nccl_host {

// The device functions of one NCCL library, by the number that its host code uses.
class FunctionTable {
 public:
  // `version`: as ncclGetVersion() returns it. The names are in the order of the numbers.
  FunctionTable(int version, const char* const* names, size_t count);

  [[nodiscard]] int version() const { return version_; }
  // Prints the function's name and ends the process if the function is not emulated.
  [[nodiscard]] const Function& At(size_t number) const;

 private:
  const int version_;
  std::vector<std::string> names_;
  std::vector<std::optional<Function>> functions_;
};

// Runs the blocks of a launch and returns when all of them have ended.
void RunKernel(const FunctionTable& table, const void* arguments, unsigned int blocks);

}  // namespace nccl_host
