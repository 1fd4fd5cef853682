#include "reconfig/abi/nccl_types.h"
#include "tests/unit/abi/facts.h"

namespace rewire::abi {

std::vector<Fact> OurNcclFacts() {
  return {
#include "tests/unit/abi/nccl_facts.inc"
  };
}

}  // namespace rewire::abi
