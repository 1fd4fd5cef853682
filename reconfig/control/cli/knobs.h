// Prints the settings table for `rewire knobs` and docs/settings.md. Pure.
#pragma once

#include <string>

namespace rewire::control {

enum class KnobsFormat { kText, kJson, kMarkdown };
std::string KnobsTable(KnobsFormat format);

}  // namespace rewire::control
