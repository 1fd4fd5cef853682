#include "tests/simgpu/nccl/error.h"

#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "reconfig/base/mutex.h"

namespace simnccl {
namespace {

rewire::Mutex last_mutex;
char last_text[1024] REWIRE_GUARDED_BY(last_mutex);

int DebugLevel() {
  const char* text = std::getenv("NCCL_DEBUG");
  if (text == nullptr) return 0;
  if (strcasecmp(text, "INFO") == 0 || strcasecmp(text, "TRACE") == 0) return 2;
  return strcasecmp(text, "WARN") == 0 ? 1 : 0;
}

void Write(const char* level, const char* text) {
  char host[64] = "?";
  ::gethostname(host, sizeof(host) - 1);
  char line[1280];
  const int n = std::snprintf(line, sizeof(line), "%s:%d:%ld NCCL %s %s\n", host, ::getpid(),
                              ::syscall(SYS_gettid), level, text);
  (void)!::write(STDERR_FILENO, line, std::min<size_t>(n, sizeof(line) - 1));
}

}  // namespace

ncclResult_t Fail(ncclResult_t result, const char* format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  {
    rewire::MutexLock lock(&last_mutex);
    std::memcpy(last_text, text, sizeof(last_text));
  }
  if (DebugLevel() >= 1) Write("WARN", text);
  return result;
}

void Info(const char* format, ...) {
  if (DebugLevel() < 2) return;
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  Write("INFO", text);
}

const char* LastError() {
  // Each thread has a copy: the caller may keep the pointer while other threads fail.
  thread_local char copy[1024];
  rewire::MutexLock lock(&last_mutex);
  std::memcpy(copy, last_text, sizeof(copy));
  return copy;
}

}  // namespace simnccl
