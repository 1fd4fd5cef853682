// The `rewire` command; see reconfig/control/cli/commands.h.
#include <fcntl.h>
#include <unistd.h>

#include "reconfig/control/cli/commands.h"

namespace {

// The next opened file would get the number of a closed standard descriptor, and with it that
// output.
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
  return rewire::control::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc));
}
