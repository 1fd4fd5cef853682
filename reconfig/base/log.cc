#include "reconfig/base/log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "reconfig/base/cancellation.h"
#include "reconfig/base/settings.h"

namespace rewire {
namespace {

std::atomic<LogSink> sink{nullptr};
std::atomic<uint64_t> epoch{0};

// A line under construction. Add() appends as snprintf does, and leaves room for a line break.
class Line {
 public:
  void Add(const char* format, ...) __attribute__((format(printf, 2, 3))) {
    va_list args;
    va_start(args, format);
    AddList(format, args);
    va_end(args);
  }
  void AddList(const char* format, va_list args) {
    const int added = vsnprintf(text_ + used_, sizeof text_ - used_ - 1, format, args);
    used_ = std::min(used_ + static_cast<size_t>(std::max(added, 0)), sizeof text_ - 2);
  }
  [[nodiscard]] std::string text() const { return {text_, used_}; }
  // A failed write is ignored, because there is no other place for the line.
  void Write() {
    text_[used_] = '\n';
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text_, used_ + 1);
  }

 private:
  char text_[2048] = {};
  size_t used_ = 0;
};

// The calendar of <chrono> takes no lock; localtime_r() takes one, which a fork may leave held.
void AddTime(Line* line) {
  const auto now = std::chrono::floor<milliseconds>(std::chrono::system_clock::now());
  const auto day = std::chrono::floor<std::chrono::days>(now);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(now - day);
  line->Add("%04d-%02u-%02uT%02d:%02d:%02d.%03dZ ", static_cast<int>(date.year()),
            static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
            static_cast<int>(time.hours().count()), static_cast<int>(time.minutes().count()),
            static_cast<int>(time.seconds().count()), static_cast<int>(time.subseconds().count()));
}

void AddPlace(Line* line) {
  const int64_t member = Settings::Get().member();
  const uint64_t now = epoch.load(std::memory_order_relaxed);
  if (member < 0 && now == 0) return;
  line->Add("[");
  if (member >= 0) line->Add("member %" PRId64 "%s", member, now == 0 ? "" : ", ");
  if (now != 0) line->Add("epoch %" PRIu64, now);
  line->Add("] ");
}

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

std::optional<uint64_t> LogRate::Take(Time now) {
  const int64_t at = ToNanoseconds(now.time_since_epoch());
  int64_t begin = window_ns_.load(std::memory_order_relaxed);
  if (at - begin >= ToNanoseconds(kWindow) && window_ns_.compare_exchange_strong(begin, at)) {
    lines_.store(0, std::memory_order_relaxed);
  }
  if (lines_.fetch_add(1, std::memory_order_relaxed) >= kMostLines) {
    left_out_.fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
  }
  return left_out_.exchange(0, std::memory_order_relaxed);
}

void SetLogEpoch(uint64_t now) { epoch.store(now, std::memory_order_relaxed); }

bool LogAllowed(LogLevel level, LogRate* rate) {
  if (level == LogLevel::kDebug) return true;
  const std::optional<uint64_t> left_out = rate->Take(Now());
  if (left_out.value_or(0) > 0) {
    LogLine(level, "%" PRIu64 " lines like the next one were left out", *left_out);
  }
  return left_out.has_value();
}

void LogLine(LogLevel level, const char* format, ...) {
  // write() would end a cancelled thread here, in the middle of work that expects to log.
  const PostponedCancellation postponed;
  char host[64] = "?";
  gethostname(host, sizeof host - 1);
  Line line;
  AddTime(&line);
  line.Add("%s:%d:%ld ", host, static_cast<int>(getpid()), static_cast<long>(syscall(SYS_gettid)));
  AddPlace(&line);
  line.Add("REWIRE %s ", Name(level));
  va_list args;
  va_start(args, format);
  line.AddList(format, args);
  va_end(args);
  if (LogSink s = sink.load(std::memory_order_acquire)) {
    s(level, line.text());
  } else {
    line.Write();
  }
}

void SetLogSink(LogSink s) { sink.store(s, std::memory_order_release); }

}  // namespace rewire
