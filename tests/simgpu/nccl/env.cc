#include "tests/simgpu/nccl/env.h"

#include <cerrno>
#include <cstdlib>

#include "tests/simgpu/nccl/error.h"

namespace simnccl {

ncclResult_t EnvInt(const char* name, int64_t fallback, int64_t min, int64_t max, int64_t* value) {
  *value = fallback;
  const char* text = std::getenv(name);
  if (text == nullptr) return ncclSuccess;
  char* end = nullptr;
  errno = 0;
  const long long parsed = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0 || parsed < min || parsed > max) {
    return Fail(ncclInvalidUsage, "%s=\"%s\" is not a number from %lld to %lld", name, text,
                static_cast<long long>(min), static_cast<long long>(max));
  }
  *value = parsed;
  return ncclSuccess;
}

std::string EnvText(const char* name, const char* fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : text;
}

ncclResult_t PretendedVersion(int* version) {
  int64_t value;
  SIMNCCL_TRY(EnvInt("SIMNCCL_VERSION", 22809, 21900, 23099, &value));
  *version = static_cast<int>(value);
  return ncclSuccess;
}

ncclResult_t BufferBytes(size_t* bytes) {
  int64_t value;
  SIMNCCL_TRY(EnvInt("NCCL_BUFFSIZE", 4 << 20, 4096, 1 << 30, &value));
  *bytes = static_cast<size_t>(value) / 4096 * 4096;
  return ncclSuccess;
}

}  // namespace simnccl
