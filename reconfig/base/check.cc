#include "reconfig/base/check.h"

#include <cstdlib>

#include "reconfig/base/log.h"

namespace rewire {

void CheckFailed(const char* file, int line, const char* condition) noexcept {
  REWIRE_ERROR("check %s:%d: condition is false: %s: the process ends (report this defect)", file,
               line, condition);
  std::abort();
}

}  // namespace rewire
