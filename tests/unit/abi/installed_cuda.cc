#include "tests/unit/abi/facts.h"

#ifdef REWIRE_HAVE_CUDA_H
#include <cuda.h>
#endif

namespace rewire::abi {

std::vector<Fact> InstalledCudaFacts() {
#if defined(REWIRE_HAVE_CUDA_H) && CUDA_VERSION >= 12080
  return {
#include "tests/unit/abi/cuda_facts.inc"
  };
#else
  return {};  // older headers lack the batched copies
#endif
}

}  // namespace rewire::abi
