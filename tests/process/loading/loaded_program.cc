#include "tests/process/loading/loaded_program.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "tests/fakes/process/sim_libraries.h"

namespace rewire {

namespace fs = std::filesystem;

LoadedProgram::LoadedProgram()
    : with_nccl_(SimLibraries(REWIRE_SIMGPU)),
      without_nccl_(folder_ / "libraries"),
      nccl_(folder_ / "nvidia/nccl/lib/libnccl.so.2") {
  fs::create_directories(without_nccl_);
  for (const auto& entry : fs::directory_iterator(with_nccl_)) {
    const std::string name = entry.path().filename();
    if (name.rfind("libnccl.so", 0) == 0) continue;
    fs::create_symlink(fs::canonical(entry.path()), without_nccl_ + "/" + name);
  }
  fs::create_directories(fs::path(nccl_).parent_path());
  fs::create_symlink(fs::canonical(with_nccl_ + "/libnccl.so.2"), nccl_);
}

std::string LoadedProgram::Copy(const std::string& file, const std::string& folder,
                                std::string name) const {
  if (name.empty()) name = fs::path(file).filename();
  fs::create_directories(folder_ / folder);
  std::string to = folder_ / folder + "/" + name;
  fs::copy_file(file, to, fs::copy_options::overwrite_existing);
  return to;
}

CommandResult LoadedProgram::Run(const std::vector<std::string>& variables,
                                 const std::vector<std::string>& command) {
  std::vector<std::string> argv = {"/usr/bin/env", "-i", "PATH=/usr/bin:/bin:/usr/sbin:/sbin"};
  // NCCL's own host code needs variables on a machine without a GPU.
  for (char** e = environ; *e != nullptr; ++e) {
    if (strncmp(*e, "NCCL_", 5) == 0 && strncmp(*e, "NCCL_HOST_", 10) != 0) argv.emplace_back(*e);
  }
  argv.insert(argv.end(), variables.begin(), variables.end());
  argv.insert(argv.end(), {"timeout", "60"});
  argv.insert(argv.end(), command.begin(), command.end());
  return Background(argv).End(seconds(80));
}

std::vector<std::string> SortedLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace rewire
