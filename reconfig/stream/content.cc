// The content hash at memory speed; see content.h.
#include "reconfig/stream/content.h"

#include <cstring>

#include "reconfig/base/hash.h"

namespace rewire {
namespace {

// Hashes whole blocks of 8 words and gives how many bytes that were.
using Blocks = size_t (*)(const unsigned char* p, size_t bytes, uint64_t position, uint64_t* sum);

#if defined(__x86_64__)
// Eight words at once: a processor with a 64-bit vector multiplication hashes as fast as memory
// gives the words. In vectors of the compiler, so that the function reads as MixWord() does.
using Words = uint64_t __attribute__((vector_size(64)));

__attribute__((target("avx512f,avx512dq"))) size_t HashWide(const unsigned char* p, size_t bytes,
                                                            uint64_t position, uint64_t* sum) {
  constexpr uint64_t kStep = 0x9E3779B97F4A7C15ULL;
  Words key;
  for (uint64_t i = 0; i < 8; ++i) key[i] = (position + i + 1) * kStep;
  Words sums[2] = {};
  const size_t blocks = bytes / 128;
  for (size_t b = 0; b < blocks; ++b) {
    for (Words& s : sums) {
      Words x;
      std::memcpy(&x, p, 64);
      x += key;
      x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
      x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
      s += x ^ (x >> 31);
      key += 8 * kStep;
      p += 64;
    }
  }
  sums[0] += sums[1];
  for (int i = 0; i < 8; ++i) *sum += sums[0][i];
  return blocks * 128;
}
#endif

// Four independent sums, so that the multiplier is never waited for.
size_t HashScalar(const unsigned char* p, size_t bytes, uint64_t position, uint64_t* sum) {
  uint64_t sums[4] = {0, 0, 0, 0};
  const size_t blocks = bytes / 32;
  for (size_t b = 0; b < blocks; ++b, p += 32, position += 4) {
    uint64_t words[4];
    std::memcpy(words, p, 32);
    for (uint64_t i = 0; i < 4; ++i) sums[i] += MixWord(words[i], position + i);
  }
  *sum += sums[0] + sums[1] + sums[2] + sums[3];
  return blocks * 32;
}

Blocks Choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return HashWide;
#endif
  return HashScalar;
}

}  // namespace

uint64_t HashContent(const void* data, size_t bytes, uint64_t offset) {
  static const Blocks hash_blocks = Choose();
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t sum = 0;
  const size_t done = hash_blocks(p, bytes, offset / 8, &sum);
  return sum + ContentHash(p + done, bytes - done, (offset / 8) * 8 + done);
}

}  // namespace rewire
