#include "bench/lib/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace rewire::bench {
namespace {

template <typename T>
bool ParseNumber(std::string_view text, T* value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stop == end;
}

absl::Status CheckRange(int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(value, " is not in ", min, "..", max));
}

}  // namespace

absl::StatusOr<int64_t> ParseSize(std::string_view text) {
  int shift = 0;
  std::string_view digits = text;
  if (!digits.empty()) {
    switch (digits.back()) {
      case 'k':
      case 'K':
        shift = 10;
        break;
      case 'm':
      case 'M':
        shift = 20;
        break;
      case 'g':
      case 'G':
        shift = 30;
        break;
      default:
        break;
    }
    if (shift != 0) digits.remove_suffix(1);
  }
  int64_t value = 0;
  if (!ParseNumber(digits, &value) || value < 0 || value > (INT64_MAX >> shift)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(text), "' is not a size (a number, or one with K, M or G)"));
  }
  return value << shift;
}

Flags::Flags(std::string program, std::string summary)
    : program_(std::move(program)), summary_(std::move(summary)) {}

Flags::Flag& Flags::Add(std::string_view names, std::string text) {
  Flag& flag = flags_.emplace_back();
  while (!names.empty()) {
    const size_t comma = names.find(',');
    flag.names.emplace_back(names.substr(0, comma));
    names.remove_prefix(comma == std::string_view::npos ? names.size() : comma + 1);
  }
  flag.text = std::move(text);
  return flag;
}

void Flags::Int(std::string_view names, int64_t* target, int64_t min, int64_t max,
                std::string text) {
  Add(names, absl::StrCat(text, " (", *target, ")")).set = [target, min, max](auto value) {
    if (!ParseNumber(value, target)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", std::string(value), "' is not a whole number"));
    }
    return CheckRange(*target, min, max);
  };
}

void Flags::Size(std::string_view names, int64_t* target, int64_t min, int64_t max,
                 std::string text) {
  Add(names, absl::StrCat(text, " (", *target, ")")).set = [target, min, max](auto value) {
    const absl::StatusOr<int64_t> size = ParseSize(value);
    if (!size.ok()) return size.status();
    *target = *size;
    return CheckRange(*target, min, max);
  };
}

void Flags::Real(std::string_view names, double* target, double min, double max, std::string text) {
  Add(names, absl::StrCat(text, " (", *target, ")")).set = [target, min, max](auto value) {
    if (!ParseNumber(value, target) || !std::isfinite(*target)) {
      return absl::InvalidArgumentError(absl::StrCat("'", std::string(value), "' is not a number"));
    }
    if (*target >= min && *target <= max) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(*target, " is not in ", min, "..", max));
  };
}

void Flags::Text(std::string_view names, std::string* target, std::vector<std::string> allowed,
                 std::string text) {
  Flag& flag = Add(
      names, absl::StrCat(text, target->empty() ? "" : " (", *target, target->empty() ? "" : ")"));
  flag.set = [target, allowed = std::move(allowed)](std::string_view value) {
    *target = std::string(value);
    if (allowed.empty() || std::find(allowed.begin(), allowed.end(), value) != allowed.end()) {
      return absl::OkStatus();
    }
    std::string all;
    for (const std::string& one : allowed) absl::StrAppend(&all, all.empty() ? "" : ", ", one);
    return absl::InvalidArgumentError(absl::StrCat("'", *target, "' is none of ", all));
  };
}

void Flags::Switch(std::string_view names, bool* target, std::string text) {
  Flag& flag = Add(names, std::move(text));
  flag.takes_value = false;
  flag.set = [target](std::string_view) {
    *target = true;
    return absl::OkStatus();
  };
}

size_t Flags::Find(std::string_view name) const {
  const auto found = std::find_if(flags_.begin(), flags_.end(), [name](const Flag& flag) {
    return std::find(flag.names.begin(), flag.names.end(), name) != flag.names.end();
  });
  return static_cast<size_t>(found - flags_.begin());
}

bool Flags::Given(std::string_view name) const {
  const size_t found = Find(name);
  return found < flags_.size() && flags_[found].given;
}

absl::Status Flags::Parse(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const size_t equals = argument.starts_with("--") ? argument.find('=') : std::string_view::npos;
    const std::string name(argument.substr(0, equals));
    const size_t found = Find(name);
    if (found == flags_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("unknown argument '", name, "'"));
    }
    Flag* const flag = &flags_[found];
    if (flag->given) return absl::InvalidArgumentError(absl::StrCat(name, " is given twice"));
    flag->given = true;
    std::string_view value;
    if (equals != std::string_view::npos) {
      if (!flag->takes_value) {
        return absl::InvalidArgumentError(absl::StrCat(name, " takes no value"));
      }
      value = argument.substr(equals + 1);
    } else if (flag->takes_value) {
      if (++i == arguments.size()) {
        return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
      }
      value = arguments[i];
    }
    const absl::Status status = flag->set(value);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

void Flags::ParseOrExit(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::fputs(Usage().c_str(), stdout);
    std::exit(0);
  }
  const absl::Status status = Parse(arguments);
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n%s", program_.c_str(), std::string(status.message()).c_str(),
               Usage().c_str());
  std::exit(2);
}

std::string Flags::Usage() const {
  std::string usage = absl::StrCat(program_, ": ", summary_, "\n");
  for (const Flag& flag : flags_) {
    std::string names;
    for (const std::string& name : flag.names) {
      absl::StrAppend(&names, names.empty() ? "" : ", ", name);
    }
    if (flag.takes_value) names += " VALUE";
    if (names.size() < 28) names.resize(28, ' ');
    absl::StrAppend(&usage, "  ", names, " ", flag.text, "\n");
  }
  return usage;
}

}  // namespace rewire::bench
