// The check that a text from a program is UTF-8, so that JSON and metrics can carry it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rewire {

// Returns whether the text is valid UTF-8: no overlong form, no surrogate, at most U+10FFFF.
inline bool IsUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<uint8_t>(text[at++]);
    if (first < 0x80) continue;
    const size_t more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    if (first < 0xc2 || first > 0xf4 || text.size() - at < more) return false;
    uint32_t code = first & (0x3fU >> more);
    for (size_t i = 0; i < more; ++i) {
      const auto next = static_cast<uint8_t>(text[at++]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    const uint32_t least = more == 3 ? 0x10000 : more == 2 ? 0x800 : 0x80;
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
  }
  return true;
}

}  // namespace rewire
