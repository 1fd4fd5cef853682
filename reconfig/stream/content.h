// The content hash at memory speed: the same function as ContentHash() of reconfig/base/hash.h,
// in vectors where the processor multiplies them. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rewire {

// == ContentHash(data, bytes, offset), offset rounded down to a multiple of 8.
uint64_t HashContent(const void* data, size_t bytes, uint64_t offset);

}  // namespace rewire
