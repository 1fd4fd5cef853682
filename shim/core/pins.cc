#include "shim/core/pins.h"

#include "shim/preload/virtual_communicator.h"

namespace rewire::shim {

namespace {

const char* Text(Pin pin) {
  switch (pin) {
    case Pin::kGraph:
      return "an operation was captured into a CUDA graph";
    case Pin::kDeviceComm:
      return "a device communicator was made from the communicator";
    case Pin::kWindowPointer:
      return "the program holds addresses of its windows";
    case Pin::kSignals:
      return "the communicator carries one-sided signals";
    case Pin::kInitAll:
      return "the communicator was made by ncclCommInitAll";
    case Pin::kGrown:
      return "the communicator was made by ncclCommGrow";
  }
  return "unknown";
}

}  // namespace

std::string DescribePins(uint32_t pins) {
  std::string text;
  for (uint32_t bit = 0; bit < 32; ++bit) {
    if ((pins >> bit & 1) == 0) continue;
    if (!text.empty()) text += "; ";
    text += Text(static_cast<Pin>(1u << bit));
  }
  return text;
}

}  // namespace rewire::shim
