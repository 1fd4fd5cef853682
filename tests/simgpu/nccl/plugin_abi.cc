#include "tests/simgpu/nccl/plugin_abi.h"

#include <cstdarg>
#include <cstdio>

#include "tests/simgpu/nccl/error.h"

namespace simnccl {
namespace {

__attribute__((format(printf, 5, 6))) void Log(int level, unsigned long /*flags*/,
                                               const char* /*file*/, int /*line*/,
                                               const char* format, ...) {
  constexpr int kWarn = 2;
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  if (level <= kWarn) {
    (void)Fail(ncclSuccess, "NET/Plugin: %s", text);
  } else {
    Info("NET/Plugin: %s", text);
  }
}

}  // namespace

PluginLogger TheLogger() { return Log; }

}  // namespace simnccl
