#include "reconfig/abi/cuda_types.h"
#include "tests/unit/abi/facts.h"

namespace rewire::abi {

std::vector<Fact> OurCudaFacts() {
  return {
#include "tests/unit/abi/cuda_facts.inc"
  };
}

}  // namespace rewire::abi
