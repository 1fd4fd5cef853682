// The `rewire` command: see reconfig/cli/commands.h.
#include <fcntl.h>
#include <unistd.h>

#include "reconfig/cli/commands.h"

namespace {

// A closed standard descriptor would become the number of the next file, and text would go there.
void OpenStandardDescriptors() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  OpenStandardDescriptors();
  return rewire::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc));
}
