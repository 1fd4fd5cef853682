#include "bench/overhead/work_of_rewire.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"

namespace rewire::bench {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Sums schedstat's first field, nanoseconds on a CPU, over the threads whose name is wanted.
int64_t ThreadsCpuNs(const std::string& process,
                     const std::function<bool(const std::string& name)>& wanted) {
  const std::string folder = absl::StrCat("/proc/", process, "/task");
  DIR* const tasks = opendir(folder.c_str());
  if (tasks == nullptr) return -1;
  int64_t sum = 0;
  while (const dirent* entry = readdir(tasks)) {
    if (entry->d_name[0] == '.') continue;
    const std::string task = absl::StrCat(folder, "/", entry->d_name);
    if (!wanted(FirstLine(task + "/comm"))) continue;
    sum += std::strtoll(FirstLine(task + "/schedstat").c_str(), nullptr, 10);
  }
  closedir(tasks);
  return sum;
}

bool All(const std::string&) { return true; }

}  // namespace

int64_t RewireThreadsCpuNs() {
  return ThreadsCpuNs("self", [](const std::string& name) {
    return name.starts_with("rewire-") || name.starts_with("rw-");
  });
}

int64_t RewireProcessesCpuNs() {
  const std::string parent = absl::StrCat(getppid());
  const std::string name = FirstLine(absl::StrCat("/proc/", parent, "/comm"));
  int64_t sum = ThreadsCpuNs(parent, All);
  DIR* const processes = opendir("/proc");
  if (processes == nullptr || sum < 0) return -1;
  while (const dirent* entry = readdir(processes)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const std::string stat = FirstLine(absl::StrCat("/proc/", entry->d_name, "/stat"));
    const size_t end = stat.rfind(')');  // the name may contain anything
    if (end == std::string::npos || stat.size() < end + 5) continue;
    if (!stat.substr(stat.find('(') + 1).starts_with(name)) continue;
    if (std::strtol(stat.c_str() + end + 4, nullptr, 10) != getppid()) continue;
    sum += std::max<int64_t>(0, ThreadsCpuNs(entry->d_name, All));
  }
  closedir(processes);
  return sum;
}

}  // namespace rewire::bench
