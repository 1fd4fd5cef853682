// Checks of the values of options. CLI11 refuses a wrong value with exit status 2.
#pragma once

#include <CLI/CLI.hpp>

namespace rewire::control {

// An empty value, such as that of an unset variable of a shell, must not pass for the default.
CLI::Validator NotEmpty();
// The number of a member.
CLI::Validator MemberNumber();
// A name that a job's folder may have.
CLI::Validator JobName();
// PORT or 127.x.y.z:PORT.
CLI::Validator MetricsAddress();

}  // namespace rewire::control
