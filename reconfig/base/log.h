// Log lines on standard error in NCCL's format, so that both interleave in a job's output:
//   host:pid:tid [epoch] REWIRE WARN text
// The setting REWIRE_LOG is the level (off, error, warn, info, debug). The function that first
// decides an error logs it, once; callers propagate the error. Thread-safe; a line is one write(2).
// Needs libc and libstdc++ only.
#pragma once

#include <cstdarg>
#include <string>

namespace rewire {

enum class LogLevel { kOff = 0, kError = 1, kWarn = 2, kInfo = 3, kDebug = 4 };

// True if a line of this level would be written.
bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The sink gets every line instead of standard error; nullptr restores standard error. For tests.
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
