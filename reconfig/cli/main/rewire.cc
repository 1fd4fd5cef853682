// The `rewire` command: see reconfig/cli/commands.h.
#include "reconfig/cli/commands.h"

int main(int argc, char** argv) {
  return rewire::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc));
}
