// A tree made by `cmake --install` and moved away from its prefix. Owned by one thread.
#pragma once

#include <string>
#include <vector>

#include "tests/fakes/process/background.h"
#include "tests/fakes/process/temporary_folder.h"

namespace rewire {

// Runs a shell command line (without ') to its end. Its environment has only PATH and `variables`,
// "A=b C=d".
CommandResult Shell(const std::string& line, const std::string& variables = "");

class InstalledTree {
 public:
  InstalledTree();
  [[nodiscard]] std::string path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  void MoveTo(const std::string& path);
  // Returns every file and link, as sorted paths in the tree.
  [[nodiscard]] std::vector<std::string> Files() const;

 private:
  TemporaryFolder folder_;
  std::string path_;
};

// Returns the file's dependencies as the loader finds them: absolute paths, and bare names if the
// loader finds none.
std::vector<std::string> Needs(const std::string& file, const std::string& variables = "");
// Returns whether the path is libc or one of its parts under another name.
bool IsLibc(const std::string& path);
bool IsCxxRuntime(const std::string& path);

}  // namespace rewire
