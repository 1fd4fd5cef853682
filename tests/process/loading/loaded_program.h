// A temporary tree with the folders of Python wheels, in which a program loads NCCL in one way:
// LIBRARIES (the simulated GPU without NCCL), nvidia/nccl/lib (NCCL), ext and bin. For the tests of
// this folder. Owned by one thread. The tree exists as long as the object.
#pragma once

#include <string>
#include <vector>

#include "tests/fakes/process/background.h"
#include "tests/fakes/process/temporary_folder.h"

namespace rewire {

class LoadedProgram {
 public:
  LoadedProgram();

  // Copies `file` into `folder` of the tree and returns the path of the copy. name: of the copy;
  // "": the name of the file.
  std::string Copy(const std::string& file, const std::string& folder, std::string name = "") const;
  // Returns a path in the tree.
  [[nodiscard]] std::string operator/(const std::string& name) const { return folder_ / name; }

  // The folder of the simulated GPU with NCCL, and the same without NCCL.
  [[nodiscard]] const std::string& with_nccl() const { return with_nccl_; }
  [[nodiscard]] const std::string& without_nccl() const { return without_nccl_; }
  // NCCL's file in nvidia/nccl/lib.
  [[nodiscard]] const std::string& nccl() const { return nccl_; }

  // Runs the command and waits for its end. Its environment has only `variables` ("NAME=value"),
  // PATH and this process's NCCL_* variables.
  [[nodiscard]] static CommandResult Run(const std::vector<std::string>& variables,
                                         const std::vector<std::string>& command);

 private:
  TemporaryFolder folder_;
  std::string with_nccl_;
  std::string without_nccl_;
  std::string nccl_;
};

// Returns the lines of a text in alphabetical order.
std::vector<std::string> SortedLines(const std::string& text);

}  // namespace rewire
