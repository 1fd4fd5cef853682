// Common declarations of all versions of the plugin ABIs, declared afresh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reconfig/abi/nccl_types.h"

namespace simnccl {

// Parameters: (level, flags, file, line, format, ...).
using PluginLogger = void (*)(int level, unsigned long flags, const char* file, int line,
                              const char* format, ...);
using PluginProfiler = ncclResult_t (*)(void** handle, int type, void* phandle, int64_t id,
                                        void* data);

// Returns a logger that writes to the library's own log.
PluginLogger TheLogger();

inline constexpr int kAlgorithms = 7;
inline constexpr int kProtocols = 3;
inline constexpr int kAlgorithmRing = 1;
inline constexpr int kProtocolLl = 0;
inline constexpr int kProtocolSimple = 2;
inline constexpr float kCostIgnore = -1.0f;

}  // namespace simnccl
