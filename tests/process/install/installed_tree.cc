#include "tests/process/install/installed_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

namespace rewire {

namespace fs = std::filesystem;

CommandResult Shell(const std::string& line, const std::string& variables) {
  return Background({"/bin/sh", "-c",
                     "exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin " + variables +
                         " timeout 60 sh -c '" + line + "'"})
      .End(seconds(80));
}

InstalledTree::InstalledTree() : path_(folder_ / "first") {
  // The installation runs twice: a tree can be installed over an older tree.
  for (const char* how : {"", "--strip "}) {
    const CommandResult r = Shell(std::string(REWIRE_CMAKE " --install " REWIRE_BINARY_DIR " ") +
                                  how + "--prefix " + path_);
    EXPECT_EQ(r.status, 0) << r.out << r.err;
  }
  MoveTo(folder_ / "somewhere/else");
}

void InstalledTree::MoveTo(const std::string& path) {
  fs::create_directories(fs::path(path).parent_path());
  fs::rename(path_, path);
  path_ = path;
}

std::vector<std::string> InstalledTree::Files() const {
  std::vector<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(path_)) {
    if (entry.is_symlink() || !entry.is_directory()) {
      out.push_back(entry.path().lexically_relative(path_).string());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> Needs(const std::string& file, const std::string& variables) {
  const CommandResult r = Shell("ldd " + file, variables);
  EXPECT_EQ(r.status, 0) << file << ": " << r.err;
  std::vector<std::string> out;
  std::istringstream lines(r.out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, arrow, path;
    words >> name >> arrow >> path;
    if (name.rfind("linux-vdso", 0) == 0) continue;
    const bool found = arrow == "=>" && path.rfind('/', 0) == 0;
    out.push_back(found ? fs::path(path).lexically_normal().string() : name);
  }
  return out;
}

bool IsLibc(const std::string& path) {
  static const std::set<std::string> kNames = {"libc.so.6",
                                               "libm.so.6",
                                               "libdl.so.2",
                                               "libpthread.so.0",
                                               "librt.so.1",
                                               "ld-linux-x86-64.so.2",
                                               "ld-linux-aarch64.so.1"};
  return path.rfind('/', 0) == 0 && kNames.count(fs::path(path).filename().string()) != 0;
}

bool IsCxxRuntime(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return name.rfind("libstdc++.so", 0) == 0 || name.rfind("libgcc_s.so", 0) == 0;
}

}  // namespace rewire
