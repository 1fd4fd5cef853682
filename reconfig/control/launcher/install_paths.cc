#include "reconfig/control/launcher/install_paths.h"

#include <filesystem>

#include "absl/strings/str_cat.h"

namespace rewire::control {

namespace fs = std::filesystem;

absl::StatusOr<std::string> OwnExecutable() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return absl::InternalError(absl::StrCat("/proc/self/exe: ", error.message()));
  return self.string();
}

InstallPaths FindInstallPaths(const std::string& executable) {
  InstallPaths out;
  out.executable = executable;
  const fs::path tree = fs::path(executable).parent_path().parent_path();
  std::error_code ignored;
  for (const fs::path& lib : {tree / "lib", tree / "lib" / "rewire"}) {
    const fs::path preload = lib / "librewire-preload.so";
    if (out.preload.empty() && fs::exists(preload, ignored)) out.preload = preload.string();
  }
  for (const fs::path& sim : {tree / "simgpu", tree / "lib" / "rewire" / "simgpu"}) {
    if (out.sim_directory.empty() && fs::exists(sim / "libnccl.so.2", ignored) &&
        fs::exists(sim / "libcuda.so.1", ignored)) {
      out.sim_directory = sim.string();
    }
  }
  return out;
}

}  // namespace rewire::control
