// The settings table, as `rewire knobs` prints it and the README has it. Pure.
#pragma once

#include <string>

namespace rewire {

enum class KnobsFormat { kText, kJson, kMarkdown };
std::string KnobsTable(KnobsFormat format);

}  // namespace rewire
