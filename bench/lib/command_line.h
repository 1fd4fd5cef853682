// The command line of a benchmark. For main().
#pragma once

#include <CLI/CLI.hpp>

namespace rewire::bench {

// --help prints the options with their defaults and exits with 0. A mistake is printed with the
// option's name and exits with 2.
void ParseOrExit(CLI::App* app, int argc, char** argv);

}  // namespace rewire::bench
