// Builds the environment of a member's process, for the launcher: torchrun's variables, the agent's
// socket, the preloaded library. Also finds the files that belong to this executable, in a build
// tree or an installation. Thread-safe. MemberEnvironment() is pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/world/world.h"

namespace rewire::control {

struct MemberPlace {
  MemberId member = 0;
  uint32_t rank = 0;
  uint32_t local_rank = 0;  // index of a GPU on this node
  uint32_t world_size = 1;
};

// The values that all members of a job share. If `socket` is empty, REWIRE_SOCKET is removed. If
// `net_key`, `preload`, `sim_directory` or `python` is empty, its variables keep their values in
// `base`.
struct JobEnvironment {
  std::string master_address = "127.0.0.1";
  uint16_t master_port = 0;
  std::string socket;         // of the job's agent
  std::string net_key;        // of the net plugin; one for all members
  std::string preload;        // the preloaded library
  std::string sim_directory;  // the simulated GPU's libraries
  std::string sim_nccl;       // the simulated libnccl.so.2
  std::string python;         // the folder of the Python package
};

// Returns `base` ("NAME=value" lines) with the member's variables, which replace those of `base`.
// LD_PRELOAD, LD_LIBRARY_PATH and PYTHONPATH keep their entries and get further ones. Fails if the
// path of the preloaded library contains a space or a colon, which separate the entries of
// LD_PRELOAD.
absl::StatusOr<std::vector<std::string>> MemberEnvironment(const std::vector<std::string>& base,
                                                           const JobEnvironment& job,
                                                           const MemberPlace& place);
// Returns the environment of this process.
std::vector<std::string> OwnEnvironment();

struct InstallPaths {
  std::string executable;
  std::string preload;        // librewire-preload.so, of a build or an install
  std::string sim_directory;  // holds libcuda.so.1 and libnccl.so.2
  std::string python;         // holds the package rewire alone
};

// Returns the path of this process's executable, from /proc/self/exe.
absl::StatusOr<std::string> OwnExecutable();
// Finds the files of an executable in <tree>/bin. The path of a missing file is empty.
InstallPaths FindInstallPaths(const std::string& executable);

}  // namespace rewire::control
