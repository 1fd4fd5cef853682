// An IPC handle as hexadecimal text, for another process. Thread-safe.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "reconfig/abi/cuda_types.h"

namespace simgpu_test {

inline std::string ToText(const CUipcMemHandle& handle) {
  std::string text;
  for (const char c : handle.reserved) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    text += two;
  }
  return text;
}

inline CUipcMemHandle FromText(std::string_view text) {
  CUipcMemHandle handle{};
  for (size_t i = 0; i < sizeof handle.reserved && 2 * i + 1 < text.size(); ++i) {
    handle.reserved[i] =
        static_cast<char>(std::stoi(std::string(text.substr(2 * i, 2)), nullptr, 16));
  }
  return handle;
}

}  // namespace simgpu_test
