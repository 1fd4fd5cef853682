// A named number of an ABI: a size, an offset or a value.
#pragma once

#include <cstddef>
#include <vector>

namespace rewire::abi {

struct Fact {
  const char* name;
  long long value;
};

std::vector<Fact> OurNcclFacts();
// Of the nccl.h that is installed; empty where none is.
std::vector<Fact> InstalledNcclFacts();

}  // namespace rewire::abi
