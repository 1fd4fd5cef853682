// The kernel of device_hash.cc: the function of ContentWord() in reconfig/base/hash.h. The build
// embeds device_hash.ptx, which these commands make in the source's folder with nvcc 13.0:
//
//   nvcc -ptx -arch=compute_75 device_hash.cu
//   sed -i 's/^.version.*/.version 6.0/;s/^.target.*/.target sm_50/;/nounroll/d' device_hash.ptx
//
// The driver compiles the text for its device, and may unroll the loops. No instruction needs more
// than PTX 6.0 and compute capability 5.0, so drivers and devices older than nvcc accept the text.
// `cmake/ptx.py check` repeats the commands.

using Word = unsigned long long;  // the 64-bit type of atomicAdd()

// Returns up to 8 bytes as a little-endian word.
static __device__ Word LoadBytes(const unsigned char* bytes, Word count) {
  Word word = 0;
#pragma unroll 1
  for (Word i = 0; i < count; ++i) word |= static_cast<Word>(bytes[i]) << (8 * i);
  return word;
}

// Adds the hash of the data to *sum. Thread i takes words i, i + threads, ...; unaligned words and
// the tail are read byte by byte. position: the number of the first word in its tensor.
extern "C" __global__ void rewire_content_hash(const unsigned char* data, Word bytes, Word position,
                                               Word* sum) {
  const Word threads = static_cast<Word>(gridDim.x) * blockDim.x;
  const Word words = (bytes + 7) / 8;
  Word hash = 0;
#pragma unroll 1
  for (Word i = static_cast<Word>(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += threads) {
    const unsigned char* const from = data + 8 * i;
    const Word left = bytes - 8 * i;
    const bool whole = reinterpret_cast<Word>(from) % 8 == 0 && left >= 8;
    const Word word =
        whole ? *reinterpret_cast<const Word*>(from) : LoadBytes(from, left < 8 ? left : 8);
    const Word mixed = (position + i + 1) * 0x9E3779B97F4A7C15u ^ word;
    const auto low = static_cast<unsigned>(mixed), high = static_cast<unsigned>(mixed >> 32);
    hash += static_cast<Word>(low) * high + (mixed << 32 | mixed >> 32);
  }
  atomicAdd(sum, hash);
}
