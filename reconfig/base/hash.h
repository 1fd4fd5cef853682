// The content hash of state bytes. Hashes are keyed by position and independent of order: fragments
// may be hashed in any order, on any number of threads or on the device, and summed.
//
//   H(bytes) = sum over 8-byte words w at word position p of T(w, p)                 (mod 2^64)
//   T(w, p)  = low32(x) * high32(x) + x with its halves swapped,  x = w xor (p + 1) * K
//
// This is the accumulation step of XXH3 (Collet) with keys derived from positions. One 32-bit
// multiplication per word suffices, so memory bandwidth is the limit. Two words at the same
// position that differ in one half only always have different T; other collisions happen by chance
// alone. Position is the word's offset in the logical tensor, not in the fragment. A tail of fewer
// than eight bytes is padded with zeros. Swapped, dropped or doubled words change H. Pure;
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rewire {

// Mixes two numbers, for keys and identities.
inline uint64_t MixWord(uint64_t word, uint64_t position) {
  // The finalizer of splitmix64, applied to the word keyed by its position.
  uint64_t x = word + (position + 1) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

inline uint64_t ContentWord(uint64_t word, uint64_t position) {
  const uint64_t x = word ^ ((position + 1) * 0x9E3779B97F4A7C15ULL);
  const uint64_t swapped = x << 32 | x >> 32;
  return (x & 0xFFFFFFFF) * (x >> 32) + swapped;
}

// Hashes `bytes` bytes at byte offset `offset` (a multiple of 8) of their tensor.
inline uint64_t ContentHash(const void* data, size_t bytes, uint64_t offset) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t position = offset / 8;
  uint64_t sum = 0;
  for (; bytes >= 8; bytes -= 8, p += 8, ++position) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    sum += ContentWord(word, position);
  }
  if (bytes > 0) {
    uint64_t word = 0;
    std::memcpy(&word, p, bytes);
    sum += ContentWord(word, position);
  }
  return sum;
}

}  // namespace rewire
