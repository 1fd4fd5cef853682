// Commands in processes of their own, with the preloaded file and the do-nothing NCCL. For the
// tests of this folder. Owned by the test's thread.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "tests/fakes/process/times.h"

namespace rewire::shim {

namespace fs = std::filesystem;

struct Ran {
  int status = -1;
  std::string output;  // stdout and stderr
};

// environment: "A=b C=d". No other variable of ours is set, except a sanitizer's report path.
inline Ran RunCommand(const std::string& environment, const std::string& command) {
  std::string line = "exec 2>&1; env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin " + environment + " ";
  for (char** e = environ; *e != nullptr; ++e) {
    if (strstr(*e, "SAN_OPTIONS=") != nullptr) line += std::string(*e) + " ";
  }
  line += "timeout 30 " + command;
  FILE* pipe = popen(line.c_str(), "r");
  Ran ran;
  char buffer[4096];
  while (size_t n = fread(buffer, 1, sizeof buffer, pipe)) ran.output.append(buffer, n);
  const int status = pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

// A sanitizer's runtime also comes first in programs that are not built with the sanitizer.
inline std::string Preload(const std::string& path) {
  return "LD_PRELOAD=" REWIRE_RUNTIME + path + " ";
}

inline std::string Folder(const std::string& path) { return fs::path(path).parent_path().string(); }

class PreloadTest : public ::testing::Test {
 protected:
  PreloadTest() {
    char name[] = "/tmp/rewire_preload_XXXXXX";
    temp_ = mkdtemp(name);
  }
  ~PreloadTest() override { fs::remove_all(temp_); }
  const std::string preload_ = Preload(REWIRE_PRELOAD);
  const std::string noop_ = std::string("REWIRE_NCCL_LIBRARY=") + REWIRE_NOOP + " ";
  const std::string probe_ = REWIRE_PROBE " ";
  std::string temp_;
};

}  // namespace rewire::shim
