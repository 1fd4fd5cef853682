// Parses the command line of a benchmark. Called by the benchmark's main(), on its thread.
#pragma once

#include <CLI/CLI.hpp>

namespace rewire::bench {

// --help prints the options with their defaults and exits with status 0. An invalid option prints
// an error with the option's name and exits with status 2.
void ParseOrExit(CLI::App* app, int argc, char** argv);

}  // namespace rewire::bench
