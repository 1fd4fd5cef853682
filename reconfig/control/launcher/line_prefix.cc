#include "reconfig/control/launcher/line_prefix.h"

#include <algorithm>

namespace rewire::control {

void LinePrefix::Take(std::string_view bytes, std::string* out) {
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const size_t room = std::min(end, kLongest - partial_.size());
    partial_.append(bytes.substr(0, room));
    bytes.remove_prefix(room);
    const bool ended = room == end && !bytes.empty();
    if (ended) bytes.remove_prefix(1);
    if (ended || partial_.size() == kLongest) {
      out->append(prefix_).append(partial_).push_back('\n');
      partial_.clear();
    }
  }
}

void LinePrefix::End(std::string* out) {
  if (partial_.empty()) return;
  out->append(prefix_).append(partial_).push_back('\n');
  partial_.clear();
}

}  // namespace rewire::control
