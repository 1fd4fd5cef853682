// How often a text occurs in a program's output, for process tests.
#pragma once

#include <string>

namespace rewire {

inline size_t Times(const std::string& text, const std::string& what) {
  size_t times = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++times;
  return times;
}

}  // namespace rewire
