#include "reconfig/base/log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "reconfig/base/cancellation.h"
#include "reconfig/base/settings.h"

namespace rewire {
namespace {

std::atomic<LogSink> sink{nullptr};

const char* Name(LogLevel level) {
  switch (level) {
    case LogLevel::kOff:
      break;
    case LogLevel::kError:
      return "ERROR";
    case LogLevel::kWarn:
      return "WARN";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kDebug:
      return "DEBUG";
  }
  return "OFF";
}

LogLevel ThresholdFromEnvironment() {
  const std::string text = Settings::Get().log();
  for (LogLevel l :
       {LogLevel::kOff, LogLevel::kError, LogLevel::kWarn, LogLevel::kInfo, LogLevel::kDebug}) {
    if (strcasecmp(text.c_str(), Name(l)) == 0) return l;
  }
  return LogLevel::kWarn;
}

}  // namespace

bool LogEnabled(LogLevel level) {
  static const LogLevel threshold = ThresholdFromEnvironment();
  return level <= threshold && level != LogLevel::kOff;
}

void LogLine(LogLevel level, const char* format, ...) {
  // write() would end a cancelled thread here, in the middle of work that expects to log.
  const PostponedCancellation postponed;
  char host[64] = "?";
  gethostname(host, sizeof host - 1);
  char line[2048];
  int used = snprintf(line, sizeof line, "%s:%d:%ld REWIRE %s ", host, static_cast<int>(getpid()),
                      static_cast<long>(syscall(SYS_gettid)), Name(level));
  va_list args;
  va_start(args, format);
  const int text =
      vsnprintf(line + used, sizeof line - static_cast<size_t>(used) - 1, format, args);
  va_end(args);
  used += text < 0 ? 0 : text;
  if (used > static_cast<int>(sizeof line) - 2) used = static_cast<int>(sizeof line) - 2;
  if (LogSink s = sink.load(std::memory_order_acquire)) {
    s(level, std::string(line, static_cast<size_t>(used)));
    return;
  }
  line[used++] = '\n';
  // A failed write is ignored, because there is no other place for the line.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, static_cast<size_t>(used));
}

void SetLogSink(LogSink s) { sink.store(s, std::memory_order_release); }

}  // namespace rewire
