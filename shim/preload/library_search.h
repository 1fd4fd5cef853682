// Finds the real libnccl.so.2 of this process, because the preloaded file has the same name. For
// shim/preload/real_nccl.cc. Thread-safe; slow.
//
// The search has the loader's order:
// - a library that is loaded already (by absolute path);
// - a loaded object that has NCCL linked into it and exports NCCL's functions;
// - the DT_RPATH of the loaded objects that need libnccl.so.2, and of the program;
// - LD_LIBRARY_PATH;
// - the DT_RUNPATH of these objects;
// - the loader's cache and its standard folders.
//
// If no object needs libnccl.so.2, one has opened it by this name, and the paths of all objects
// count. The search skips this library under any name.
#pragma once

#include <string>
#include <vector>

namespace rewire::shim {

inline constexpr const char* kNcclSoname = "libnccl.so.2";

// Returns the real path of the file that contains this code.
std::string OwnPath();
// Returns existing files except this one, best first, each once. `searched` gets a line per place.
std::vector<std::string> FindNccl(std::vector<std::string>* searched);
// Warns once of a libnccl in the process that is neither `real` nor this library.
void WarnOfSecondLibrary(const char* real);

// Exposed for tests. Folders of an RPATH-like list with $ORIGIN and ${ORIGIN} replaced.
std::vector<std::string> Folders(const std::string& list, const std::string& origin);
// Returns the paths that the loader's cache file has for the name.
std::vector<std::string> InLoaderCache(const std::string& cache_file, const std::string& name);

}  // namespace rewire::shim
