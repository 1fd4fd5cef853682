// A tree made by `cmake --install`, moved away from where it was installed to. One thread.
#pragma once

#include <string>
#include <vector>

#include "tests/fakes/process/background.h"
#include "tests/fakes/process/temporary_folder.h"

namespace rewire {

// Runs a shell's command line, without ', to its end. Of the environment it has only PATH and
// `variables`, "A=b C=d".
CommandResult Shell(const std::string& line, const std::string& variables = "");

class InstalledTree {
 public:
  InstalledTree();
  [[nodiscard]] std::string path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  void MoveTo(const std::string& path);
  // Every file and link, as paths in the tree, sorted.
  [[nodiscard]] std::vector<std::string> Files() const;

 private:
  TemporaryFolder folder_;
  std::string path_;
};

// What a file needs, as the loader finds it: absolute paths, and bare names where it finds none.
std::vector<std::string> Needs(const std::string& file, const std::string& variables = "");
// libc, and its parts under other names.
bool IsLibc(const std::string& path);
bool IsCxxRuntime(const std::string& path);

}  // namespace rewire
