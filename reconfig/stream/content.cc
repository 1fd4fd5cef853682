// The unrolled content hash; see content.h.
#include "reconfig/stream/content.h"

#include <cstring>

#include "reconfig/base/hash.h"

namespace rewire {

uint64_t HashContent(const void* data, size_t bytes, uint64_t offset) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t position = offset / 8;
  uint64_t sums[4] = {0, 0, 0, 0};
  for (; bytes >= 32; bytes -= 32, p += 32, position += 4) {
    uint64_t words[4];
    std::memcpy(words, p, 32);
    for (uint64_t i = 0; i < 4; ++i) sums[i] += MixWord(words[i], position + i);
  }
  return sums[0] + sums[1] + sums[2] + sums[3] + ContentHash(p, bytes, position * 8);
}

}  // namespace rewire
