// Log lines on standard error in NCCL's format, so that both interleave in a job's output:
//   host:pid:tid [epoch] REWIRE WARN text
// The level is REWIRE_LOG (off, error, warn, info, debug). The function that first decides an error
// logs it, once; callers propagate. Thread-safe; a line is one write(2). libc and libstdc++ only.
#pragma once

#include <cstdarg>
#include <string>

namespace rewire {

enum class LogLevel { kOff = 0, kError = 1, kWarn = 2, kInfo = 3, kDebug = 4 };

// Whether a line of this level would be written.
bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Sees every line that is written, instead of standard error; nullptr restores. For tests.
using LogSink = void (*)(LogLevel level, const std::string& line);
void SetLogSink(LogSink sink);

}  // namespace rewire

#define REWIRE_LOG(level, ...)                                              \
  do {                                                                      \
    if (::rewire::LogEnabled(level)) ::rewire::LogLine(level, __VA_ARGS__); \
  } while (false)
#define REWIRE_ERROR(...) REWIRE_LOG(::rewire::LogLevel::kError, __VA_ARGS__)
#define REWIRE_WARN(...) REWIRE_LOG(::rewire::LogLevel::kWarn, __VA_ARGS__)
#define REWIRE_INFO(...) REWIRE_LOG(::rewire::LogLevel::kInfo, __VA_ARGS__)
#define REWIRE_DEBUG(...) REWIRE_LOG(::rewire::LogLevel::kDebug, __VA_ARGS__)
