// libFuzzer: any lines as an environment. A value outside its range leaves the default and gives an
// error that names the variable; the error also names an unknown REWIRE_* variable.
#include <string>
#include <string_view>
#include <vector>

#include "reconfig/base/settings.h"
#include "tests/fuzz/require.h"

namespace {

std::vector<std::string> Lines(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    lines.emplace_back(bytes.substr(0, end));
    bytes.remove_prefix(std::min(bytes.size(), end + 1));
  }
  return lines;
}

// Checks that every integer setting is inside the range that the table states.
void CheckRanges(const rewire::Settings& settings) {
#define REWIRE_SETTING_INT(accessor, variable, default_value, low, high, ...) \
  Require(settings.accessor() >= (low) && settings.accessor() <= (high));
#define REWIRE_SETTING_TEXT(accessor, ...) static_cast<void>(settings.accessor());
#include "reconfig/base/settings.def"
#undef REWIRE_SETTING_INT
#undef REWIRE_SETTING_TEXT
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<rewire::SettingRow> table = rewire::Settings::Table();
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  CheckRanges(rewire::Settings(Lines(bytes)));
  if (size == 0) return 0;
  // Uses the input as the value of one known variable.
  const rewire::SettingRow& row = table[data[0] % table.size()];
  const std::string value(bytes.substr(1));
  const rewire::Settings settings({std::string(row.variable) + "=" + value});
  CheckRanges(settings);
  const std::string& error = settings.Error();
  Require(error.empty() || error.find(row.variable) != std::string::npos);
  return 0;
}
