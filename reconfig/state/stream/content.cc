// Computes the content hash at memory speed; see content.h.
#include "reconfig/state/stream/content.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 warns about the deliberately undefined operands of its own intrinsics (bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif

#include "reconfig/base/hash.h"

namespace rewire::state {
namespace {

// Hashes whole blocks of words and returns the number of hashed bytes.
using Blocks = size_t (*)(const unsigned char* p, size_t bytes, uint64_t position, uint64_t* sum);

#if defined(__x86_64__)
// Hashes eight words at once in two sums, which is faster than the memory bandwidth.
__attribute__((target("avx512f"))) size_t HashWide(const unsigned char* p, size_t bytes,
                                                   uint64_t position, uint64_t* sum) {
  constexpr uint64_t kStep = 0x9E3779B97F4A7C15ULL;
  alignas(64) uint64_t keys[8];
  for (uint64_t i = 0; i < 8; ++i) keys[i] = (position + i + 1) * kStep;
  __m512i key = _mm512_load_si512(keys);
  const __m512i step = _mm512_set1_epi64(static_cast<int64_t>(8 * kStep));
  __m512i sums[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  const size_t blocks = bytes / 128;
  for (size_t b = 0; b < blocks; ++b) {
    for (__m512i& s : sums) {
      const __m512i x = _mm512_xor_si512(_mm512_loadu_si512(p), key);
      const __m512i swapped = _mm512_shuffle_epi32(x, _MM_PERM_CDAB);
      s = _mm512_add_epi64(s, _mm512_add_epi64(_mm512_mul_epu32(x, swapped), swapped));
      key = _mm512_add_epi64(key, step);
      p += 64;
    }
  }
  // _mm512_reduce_add_epi64 is not used: gcc's version adds signed numbers, which must not
  // overflow.
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, _mm512_add_epi64(sums[0], sums[1]));
  for (const uint64_t lane : lanes) *sum += lane;
  return blocks * 128;
}
#endif

// Uses four independent sums, so that no addition waits for the multiplier.
size_t HashScalar(const unsigned char* p, size_t bytes, uint64_t position, uint64_t* sum) {
  uint64_t sums[4] = {0, 0, 0, 0};
  const size_t blocks = bytes / 32;
  for (size_t b = 0; b < blocks; ++b, p += 32, position += 4) {
    uint64_t words[4];
    std::memcpy(words, p, 32);
    for (uint64_t i = 0; i < 4; ++i) sums[i] += ContentWord(words[i], position + i);
  }
  *sum += sums[0] + sums[1] + sums[2] + sums[3];
  return blocks * 32;
}

Blocks Choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return HashWide;
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

}  // namespace rewire::state
