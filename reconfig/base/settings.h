// The REWIRE_* settings of this process, parsed once from the environment by the table
// settings.def.
//
// An absent variable means the default. A wrong value never falls back silently: Settings::Error()
// names the variable, the value and the range, and every entry point refuses to start with that
// text. Immutable after the first call; thread-safe. Needs libc and libstdc++ only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rewire {

struct SettingRow {
  const char* variable;
  const char* type;  // "int" or "text"
  std::string default_value;
  std::string range;  // "0..10" or "a|b", empty for any
  const char* unit;
  const char* text;
};

// The table's numbers, for options that take their values from settings: each default is in one
// place, and a test may leave an option as it is.
struct SettingDefaults {
#define REWIRE_SETTING_INT(accessor, variable, default_value, ...) \
  static constexpr int64_t accessor = default_value;
#define REWIRE_SETTING_TEXT(...)
#include "reconfig/base/settings.def"
#undef REWIRE_SETTING_INT
#undef REWIRE_SETTING_TEXT
};

class Settings {
 public:
  // Returns the process's settings. After a wrong value, the default is here and Error() is set.
  static const Settings& Get();
  // Parses from a list of "NAME=value" strings, as in environ(7). For tests and the launcher.
  explicit Settings(const std::vector<std::string>& environment);

  // Returns every row of the table, for `rewire knobs` and docs/settings.md.
  static std::vector<SettingRow> Table();

  // Empty if all values are valid; otherwise one line per wrong variable.
  [[nodiscard]] const std::string& Error() const { return error_; }
  // One line per unknown REWIRE_* variable, with the nearest known name.
  [[nodiscard]] const std::string& Unknown() const { return unknown_; }

#define REWIRE_SETTING_INT(accessor, ...) \
  [[nodiscard]] int64_t accessor() const { return accessor##_; }
#define REWIRE_SETTING_TEXT(accessor, ...) \
  [[nodiscard]] const std::string& accessor() const { return accessor##_; }
#include "reconfig/base/settings.def"
#undef REWIRE_SETTING_INT
#undef REWIRE_SETTING_TEXT

 private:
#define REWIRE_SETTING_INT(accessor, variable, default_value, ...) \
  int64_t accessor##_ = default_value;
#define REWIRE_SETTING_TEXT(accessor, variable, default_value, ...) \
  std::string accessor##_ = default_value;
#include "reconfig/base/settings.def"
#undef REWIRE_SETTING_INT
#undef REWIRE_SETTING_TEXT
  std::string error_;
  std::string unknown_;
};

}  // namespace rewire
