// Checks of the values of options. CLI11 refuses a wrong value with exit status 2.
#pragma once

#include <CLI/CLI.hpp>

namespace rewire::control {

// An empty value, such as that of an unset variable of a shell, must not pass for the default.
CLI::Validator NotEmpty();
// PORT or 127.x.y.z:PORT.
CLI::Validator MetricsAddress();

}  // namespace rewire::control
