#include "reconfig/base/check.h"

#include <cstdlib>

#include "reconfig/base/log.h"

namespace rewire {

void CheckFailed(const char* file, int line, const char* condition) noexcept {
  REWIRE_ERROR("defect at %s:%d: not true: %s: the process ends", file, line, condition);
  std::abort();
}

}  // namespace rewire
