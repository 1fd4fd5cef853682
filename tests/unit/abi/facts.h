// A named number of an ABI: a size, an offset or a value. Thread-safe.
#pragma once

#include <cstddef>
#include <vector>

namespace rewire::abi {

struct Fact {
  const char* name;
  long long value;
};

std::vector<Fact> OurNcclFacts();
// The facts of the installed nccl.h; empty if none is installed.
std::vector<Fact> InstalledNcclFacts();

std::vector<Fact> OurCudaFacts();
// The facts of the installed cuda.h; empty if none is installed or if it is too old.
std::vector<Fact> InstalledCudaFacts();

}  // namespace rewire::abi
