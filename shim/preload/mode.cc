#include "shim/preload/mode.h"

#include <string>

#include "reconfig/base/log.h"
#include "reconfig/base/settings.h"

namespace rewire::shim {

std::atomic<Mode> mode{Mode::kUndecided};

Mode DecideMode() noexcept {
  const Mode decided = Settings::Get().disable() == 1 ? Mode::kOff : Mode::kOn;
  mode.store(decided, std::memory_order_relaxed);
  return decided;
}

namespace {

// Logs one line per line of text, so that a long list is not truncated.
void LogLines(LogLevel level, const std::string& text) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    LogLine(level, "%s", text.substr(begin, end - begin).c_str());
    begin = end + 1;
  }
}

}  // namespace

ncclResult_t CheckSettings() noexcept {
  static std::atomic<bool> said{false};
  const Settings& settings = Settings::Get();
  if (!said.exchange(true, std::memory_order_relaxed)) {
    if (LogEnabled(LogLevel::kWarn)) LogLines(LogLevel::kWarn, settings.Unknown());
    // Even with REWIRE_LOG=off the reason why no communicator can be made must be visible.
    LogLines(LogLevel::kError, settings.Error());
  }
  return settings.Error().empty() ? ncclSuccess : ncclInvalidUsage;
}

}  // namespace rewire::shim
