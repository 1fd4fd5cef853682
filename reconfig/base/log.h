// Log lines on standard error, similar to NCCL's, so that both interleave in a job's output:
//   2026-11-27T14:06:25.123Z host:pid:tid [member 3, epoch 12] REWIRE WARN text
// The member is that of REWIRE_MEMBER. The setting REWIRE_LOG is the level (off, error, warn, info,
// debug). The function that first decides an error logs it, once; callers propagate the error.
// A statement that logs too often is limited. Thread-safe; a line is one write(2). Needs libc and
// libstdc++ only.
#pragma once

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <optional>
#include <string>

#include "reconfig/base/clock.h"

namespace rewire {

enum class LogLevel { kOff = 0, kError = 1, kWarn = 2, kInfo = 3, kDebug = 4 };

// True if a line of this level would be written.
bool LogEnabled(LogLevel level);

// Limits the lines of one statement. Thread-safe.
class LogRate {
 public:
  static constexpr uint32_t kMostLines = 100;
  static constexpr Duration kWindow = seconds(10);
  // Returns how many lines were left out since the statement's last line; nullopt: leave out this
  // line.
  std::optional<uint64_t> Take(Time now);

 private:
  std::atomic<int64_t> window_ns_{0};  // the window's begin
  std::atomic<uint32_t> lines_{0};     // in this window
  std::atomic<uint64_t> left_out_{0};
};

// Returns whether a statement may write a line; kDebug has no limit. Writes how many of the
// statement's lines were left out before.
bool LogAllowed(LogLevel level, LogRate* rate);
// Writes a line of any level. REWIRE_LOG and its short forms below check the level and the rate.
void LogLine(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Sets the epoch of the lines that follow from this library; 0: none is known.
void SetLogEpoch(uint64_t epoch);

// The sink gets every line instead of standard error; nullptr restores standard error. For tests.
using LogSink = void (*)(LogLevel level, const std::string& line);
void SetLogSink(LogSink sink);

}  // namespace rewire

#define REWIRE_LOG(level, ...)                                                      \
  do {                                                                              \
    static ::rewire::LogRate rewire_rate;                                           \
    if (::rewire::LogEnabled(level) && ::rewire::LogAllowed(level, &rewire_rate)) { \
      ::rewire::LogLine(level, __VA_ARGS__);                                        \
    }                                                                               \
  } while (false)
#define REWIRE_ERROR(...) REWIRE_LOG(::rewire::LogLevel::kError, __VA_ARGS__)
#define REWIRE_WARN(...) REWIRE_LOG(::rewire::LogLevel::kWarn, __VA_ARGS__)
#define REWIRE_INFO(...) REWIRE_LOG(::rewire::LogLevel::kInfo, __VA_ARGS__)
#define REWIRE_DEBUG(...) REWIRE_LOG(::rewire::LogLevel::kDebug, __VA_ARGS__)
