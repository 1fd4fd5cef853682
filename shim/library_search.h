// Where the real libnccl.so.2 of this process is, now that ours has its name. Any thread; slow.
//
// In this order: one that is loaded already (an absolute path went past us); along the RPATH or
// RUNPATH of the loaded objects that need libnccl.so.2, as the loader would have; LD_LIBRARY_PATH;
// the loader's cache; its standard folders. Never ourselves, under whatever name.
#pragma once

#include <string>
#include <vector>

namespace rewire::shim {

inline constexpr const char* kNcclSoname = "libnccl.so.2";

// Real path of the file that this code is in.
std::string OwnPath();
// Existing files that are not ours, best first, each once. `searched` gets one line per place.
std::vector<std::string> FindNccl(std::vector<std::string>* searched);
// A libnccl in the process that is neither `real` nor ours is warned of, once.
void WarnOfSecondLibrary(const char* real);

// Parts, for tests. Folders of an RPATH-like list with $ORIGIN and ${ORIGIN} replaced.
std::vector<std::string> Folders(const std::string& list, const std::string& origin);
// Paths that the loader's cache file has for the name.
std::vector<std::string> InLoaderCache(const std::string& cache_file, const std::string& name);

}  // namespace rewire::shim
