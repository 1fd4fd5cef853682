// The kernels of chunk_sum.cc, one for each type of gradients. The build embeds chunk_sum.ptx,
// which these commands make in the source's folder with nvcc 13.0:
//
//   nvcc -ptx -arch=compute_75 chunk_sum.cu
//   sed -i 's/^.version.*/.version 6.0/;s/^.target.*/.target sm_50/;/nounroll/d' chunk_sum.ptx
//
// The driver compiles the text for its device, and may unroll the loops. No instruction needs more
// than PTX 6.0 and compute capability 5.0, so drivers and devices older than nvcc accept the text.
// `cmake/ptx.py check` repeats the commands.

using Word = unsigned long long;

struct Float32 {
  using Element = float;
  static __device__ float Load(const float* from) { return *from; }
  static __device__ void Store(float* to, float value) { *to = value; }
};

struct Bfloat16 {
  using Element = unsigned short;
  static __device__ float Load(const unsigned short* from) {
    return __uint_as_float(static_cast<unsigned>(*from) << 16);
  }
  // Rounds to nearest, ties to even, in integers: the instruction needs a newer device. NaN stays
  // NaN.
  static __device__ void Store(unsigned short* to, float value) {
    const unsigned bits = __float_as_uint(value);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    const unsigned rounded = (bits + (bits >> 16 & 1) + 0x7fff) >> 16;
    *to = static_cast<unsigned short>(nan ? bits >> 16 | 0x40 : rounded);
  }
};

// Computes the sums of the table, whose format is that of SumTable() in chunk_sum.h. Blocks (x, y)
// take elements x, x + nx, ... (in units of a block) of sums y, y + ny, ...
template <typename Type>
static __device__ void AddChunks(const Word* table, Word sums, Word elements, char* shards,
                                 char* slots, char* staging) {
  using Element = typename Type::Element;
  const auto at = [&](Word place) {
    char* const base = place >> 62 == 0 ? shards : place >> 62 == 1 ? slots : staging;
    return reinterpret_cast<Element*>(base + (place << 2 >> 2));
  };
  const Word first = static_cast<Word>(blockIdx.x) * blockDim.x + threadIdx.x;
  const Word threads = static_cast<Word>(gridDim.x) * blockDim.x;
#pragma unroll 1
  for (Word row = blockIdx.y; row < sums; row += gridDim.y) {
    Element* const to = at(table[3 * row]);
    const Word* const begin = table + table[3 * row + 1];
    const Word* const end = table + table[3 * row + 2];
#pragma unroll 1
    for (Word i = first; i < elements; i += threads) {
      float sum = -0.0f;  // the neutral element of the addition
      const Word* source = begin;
#pragma unroll 1
      do {
        sum = __fadd_rn(sum, Type::Load(at(*source) + i));
      } while (++source < end);
      Type::Store(to + i, sum);
    }
  }
}

extern "C" __global__ void rewire_sum_f32(const Word* table, Word sums, Word elements, char* shards,
                                          char* slots, char* staging) {
  AddChunks<Float32>(table, sums, elements, shards, slots, staging);
}

extern "C" __global__ void rewire_sum_bf16(const Word* table, Word sums, Word elements,
                                           char* shards, char* slots, char* staging) {
  AddChunks<Bfloat16>(table, sums, elements, shards, slots, staging);
}
