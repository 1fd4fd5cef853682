// The content hash of state bytes: position-keyed and order-free, so that fragments may be hashed
// in any order, on any number of threads or on the device, and summed.
//
//   H(bytes) = sum over 8-byte words w at word position p of Mix(w, p)   (mod 2^64)
//
// Position is the word's offset in the logical tensor, not in the fragment. A tail of fewer than
// eight bytes is padded with zeros. Pure; thread-safe. Swapped, dropped or doubled words change H.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rewire {

inline uint64_t MixWord(uint64_t word, uint64_t position) {
  // The finalizer of splitmix64 over the word keyed by its position.
  uint64_t x = word + (position + 1) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Hash of `bytes` bytes that lie at byte offset `offset` (a multiple of 8) of their tensor.
inline uint64_t ContentHash(const void* data, size_t bytes, uint64_t offset) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t position = offset / 8;
  uint64_t sum = 0;
  for (; bytes >= 8; bytes -= 8, p += 8, ++position) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    sum += MixWord(word, position);
  }
  if (bytes > 0) {
    uint64_t word = 0;
    std::memcpy(&word, p, bytes);
    sum += MixWord(word, position);
  }
  return sum;
}

}  // namespace rewire
