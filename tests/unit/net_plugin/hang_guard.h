// The limit of every wait in tests of the net plugin. Only a hang reaches it.
#pragma once

#include "reconfig/base/clock.h"

namespace rewire::net {

inline constexpr Duration kHangGuard = seconds(120);

}  // namespace rewire::net
