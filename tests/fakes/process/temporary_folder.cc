#include "tests/fakes/process/temporary_folder.h"

#include <cstdlib>
#include <filesystem>

namespace rewire {

TemporaryFolder::TemporaryFolder() {
  std::string name = std::filesystem::temp_directory_path() / "rewire-test-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) abort();
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace rewire
