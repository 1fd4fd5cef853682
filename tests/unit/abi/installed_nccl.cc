#include "tests/unit/abi/facts.h"

#ifdef REWIRE_HAVE_NCCL_H
#include <nccl.h>
#endif

namespace rewire::abi {

std::vector<Fact> InstalledNcclFacts() {
#if defined(REWIRE_HAVE_NCCL_H) && NCCL_VERSION_CODE >= 22800 && NCCL_VERSION_CODE < 22900
  return {
#include "tests/unit/abi/nccl_facts.inc"
  };
#else
  return {};  // other versions' structs have other sizes; the shim passes them through unchanged
#endif
}

}  // namespace rewire::abi
