// The folder of libcuda.so.1 and libnccl.so.2 for programs of a process test: the simulated GPU's,
// or that of a build of NCCL's host code (tests/nccl_host). Thread-safe.
#pragma once

#include <cstdlib>
#include <string>

namespace rewire {

inline std::string SimLibraries(const char* simgpu) {
  const char* const nccl_host = std::getenv("NCCL_HOST_LIBRARIES");
  return nccl_host != nullptr ? nccl_host : simgpu;
}

}  // namespace rewire
