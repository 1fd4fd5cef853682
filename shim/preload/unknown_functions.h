// Functions of a loaded NCCL that Rewire's table lacks: NCCL is newer than this Rewire. A program
// that reaches one past the shim would give it a virtual communicator. For
// shim/preload/real_nccl.cc. Thread-safe; slow.
#pragma once

#include <string>
#include <vector>

namespace rewire::shim {

// Takes a handle of dlopen. Returns the names of the library's exported ncclX functions that
// shim/gen/nccl_functions.txt lacks, except NCCL's own (ncclXInternal).
std::vector<std::string> UnknownFunctions(void* library);
// Returns whether a loaded object that needs libnccl.so.2 has a call of an NCCL function that is
// not in the table and not bound yet. The loader binds the call at its first use, and finds the
// function only if the real library is in the process's global scope by then. Thread-safe.
bool UnknownFunctionNeeded();

}  // namespace rewire::shim
