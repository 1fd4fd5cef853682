// Compares a new cut of a communicator with a decided swap that the communicator has not passed
// yet. For leader and members, which share these rules (docs/protocol.md, "Pending swaps"). Pure.
#pragma once

#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

enum class CutOrder {
  kReplaces,  // no member can have begun the pending swap: its generation is dropped unused
  kFollows,   // the pending swap comes first
  kCrosses,   // neither: the cut must be refused
};

inline CutOrder OrderOf(const Cut& cut, const PendingSwap& pending) {
  if (cut.warm <= pending.warm && cut.cut <= pending.cut) return CutOrder::kReplaces;
  return cut.warm >= pending.cut ? CutOrder::kFollows : CutOrder::kCrosses;
}

}  // namespace rewire::elastic
