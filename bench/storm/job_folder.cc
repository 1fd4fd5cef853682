#include "bench/storm/job_folder.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace rewire::bench {

void JobFolder::Put(const std::string& name, const ncclUniqueId& id) const {
  const std::string target = path_ + "/" + name;
  const std::string temporary = target + ".new";
  std::ofstream(temporary, std::ios::binary).write(id.internal, sizeof id.internal);
  std::filesystem::rename(temporary, target);
}

bool JobFolder::Get(const std::string& name, Duration within, ncclUniqueId* id) const {
  const std::string path = path_ + "/" + name;
  const Time deadline = Now() + within;
  while (::access(path.c_str(), R_OK) != 0) {
    if (Now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  std::ifstream(path, std::ios::binary).read(id->internal, sizeof id->internal);
  return true;
}

Word JobFolder::Read() const {
  const auto has = [&](const char* name) {
    return ::access((path_ + "/" + name).c_str(), F_OK) == 0;
  };
  if (has("end")) return Word::kEnd;
  return has("keep") ? Word::kKeep : Word::kChange;
}

}  // namespace rewire::bench
