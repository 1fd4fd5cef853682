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

std::vector<Fact> OurCudaFacts();
// Of the cuda.h that is installed; empty where none is, or an old one.
std::vector<Fact> InstalledCudaFacts();

}  // namespace rewire::abi
