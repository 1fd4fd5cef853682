// Describes in words why a communicator cannot be swapped. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace rewire::shim {

// pins: bits of shim::Pin.
std::string DescribePins(uint32_t pins);

}  // namespace rewire::shim
