// Computes the content hash at memory speed: the same function as ContentHash() of
// reconfig/base/hash.h, with vector instructions where the processor has AVX-512. Pure and
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rewire::state {

// Equals ContentHash(data, bytes, offset), with `offset` rounded down to a multiple of 8.
uint64_t HashContent(const void* data, size_t bytes, uint64_t offset);

}  // namespace rewire::state
