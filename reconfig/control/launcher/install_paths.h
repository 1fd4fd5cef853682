// Finds the files that belong to this executable, in a build tree or an installation. Thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace rewire::control {

struct InstallPaths {
  std::string executable;
  std::string preload;        // librewire-preload.so, of a build or an install
  std::string sim_directory;  // holds libcuda.so.1 and libnccl.so.2
};

// Returns the executable's own path, from the kernel.
absl::StatusOr<std::string> OwnExecutable();
// Finds the files of an executable in <tree>/bin. The path of a missing file is empty.
InstallPaths FindInstallPaths(const std::string& executable);

}  // namespace rewire::control
