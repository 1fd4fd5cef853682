// Builds the environment of members; see member_environment.h. Thread-safe.
#include "reconfig/control/launcher/member_environment.h"

#include <unistd.h>

#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"

namespace rewire::control {
namespace {

// Returns whether `list`, separated by any of `separators`, contains `entry`.
bool Has(std::string_view list, std::string_view separators, std::string_view entry) {
  while (!list.empty()) {
    const size_t end = list.find_first_of(separators);
    if (list.substr(0, end) == entry) return true;
    if (end == std::string_view::npos) return false;
    list.remove_prefix(end + 1);
  }
  return false;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> MemberEnvironment(const std::vector<std::string>& base,
                                                           const JobEnvironment& job,
                                                           const MemberPlace& place) {
  std::map<std::string, std::string> env;
  for (const std::string& line : base) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) env[line.substr(0, equals)] = line.substr(equals + 1);
  }
  env["RANK"] = std::to_string(place.rank);
  env["LOCAL_RANK"] = std::to_string(place.local_rank);
  // There is one node, so the local world is the whole world.
  env["WORLD_SIZE"] = env["LOCAL_WORLD_SIZE"] = std::to_string(place.world_size);
  env["GROUP_RANK"] = std::to_string(0);
  env["MASTER_ADDR"] = job.master_address;
  env["MASTER_PORT"] = std::to_string(job.master_port);
  env["REWIRE_MEMBER"] = std::to_string(place.member);
  // The agent of an outer job is not this job's agent.
  env.erase("REWIRE_SOCKET");
  if (!job.socket.empty()) env["REWIRE_SOCKET"] = job.socket;
  if (!job.net_key.empty()) env["REWIRE_NET_KEY"] = job.net_key;
  if (!job.preload.empty()) {
    if (job.preload.find_first_of(" :") != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("LD_PRELOAD: path=", job.preload, ": must not contain a space or a colon"));
    }
    // Appended, because a sanitizer's or an allocator's library must come first.
    std::string& preload = env["LD_PRELOAD"];
    if (!Has(preload, " :", job.preload)) {
      absl::StrAppend(&preload, preload.empty() ? "" : ":", job.preload);
    }
  }
  if (!job.preload.empty()) {
    // librewire.so is in this folder, for a program that cooperates. Appended last.
    const std::string directory = job.preload.substr(0, job.preload.rfind('/'));
    std::string& path = env["LD_LIBRARY_PATH"];
    if (!Has(path, ":;", directory)) absl::StrAppend(&path, path.empty() ? "" : ":", directory);
  }
  if (!job.sim_directory.empty()) {
    std::string& path = env["LD_LIBRARY_PATH"];
    if (!Has(path, ":;", job.sim_directory)) {
      path = absl::StrCat(job.sim_directory, path.empty() ? "" : ":", path);
    }
    env["REWIRE_NCCL_LIBRARY"] = job.sim_nccl;
  }
  if (!job.python.empty()) {
    std::string& path = env["PYTHONPATH"];
    if (!Has(path, ":", job.python)) absl::StrAppend(&path, path.empty() ? "" : ":", job.python);
  }
  std::vector<std::string> out;
  out.reserve(env.size());
  for (const auto& [name, value] : env) out.push_back(absl::StrCat(name, "=", value));
  return out;
}

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> out;
  for (char** e = environ; e != nullptr && *e != nullptr; ++e) out.emplace_back(*e);
  return out;
}

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
  const fs::path folder = fs::path(executable).parent_path();
  const fs::path build = folder.parent_path();
  const fs::path installed = (folder / REWIRE_TO_LIBRARIES).lexically_normal();
  std::error_code ignored;
  for (const fs::path& lib : {build / "lib", installed}) {
    const fs::path preload = lib / "librewire-preload.so";
    if (out.preload.empty() && fs::exists(preload, ignored)) out.preload = preload.string();
  }
  for (const fs::path& sim : {build / "simgpu", installed / "simgpu"}) {
    if (out.sim_directory.empty() && fs::exists(sim / "libnccl.so.2", ignored) &&
        fs::exists(sim / "libcuda.so.1", ignored)) {
      out.sim_directory = sim.string();
    }
  }
  // The package of a wheel is among others, which must not come before those of the interpreter.
  const fs::path python = (folder / REWIRE_TO_PYTHON).lexically_normal();
  if (fs::exists(python / "rewire" / "__init__.py", ignored)) out.python = python.string();
  return out;
}

}  // namespace rewire::control
