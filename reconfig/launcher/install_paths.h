// Where the files that belong to this executable are: the build tree's or the installed tree's.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace rewire {

struct InstallPaths {
  std::string executable;
  std::string preload;        // librewire-preload.so, of a build or an install
  std::string sim_directory;  // holds libcuda.so.1 and libnccl.so.2
};

// The executable's own path, from the kernel.
absl::StatusOr<std::string> OwnExecutable();
// Relative to an executable in <tree>/bin. A file that is not there is an empty path.
InstallPaths FindInstallPaths(const std::string& executable);

}  // namespace rewire
