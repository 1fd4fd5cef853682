// Unpredictable random numbers for identities and nonces. Thread-safe.
#pragma once

#include <sys/random.h>
#include <sys/types.h>

#include <cstdint>

namespace rewire::net {

// Returns a random number other than 0.
inline uint64_t Random() {
  uint64_t value = 0;
  while (value == 0) {
    if (getrandom(&value, sizeof value, 0) != ssize_t{sizeof value}) value = 0;
  }
  return value;
}

}  // namespace rewire::net
