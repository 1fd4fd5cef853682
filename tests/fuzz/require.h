// The assertion of the fuzz targets: the fuzzer reports an abort with the input. Thread-safe.
#pragma once

#include <cstdlib>

inline void Require(bool holds) {
  if (!holds) std::abort();
}
