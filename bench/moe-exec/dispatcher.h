// What a framework does around a layer of experts, over NCCL: rows go to the processes that own
// their experts and are put in the experts' order; afterwards they go back. All of it is put into
// one stream. One thread.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "bench/moe-exec/sim_device.h"

namespace rewire::bench {

inline float* Floats(CUdeviceptr p) { return reinterpret_cast<float*>(static_cast<uintptr_t>(p)); }
// In [-1, 1), from what it is of.
[[nodiscard]] float ValueOf(uint64_t a, uint64_t b, uint64_t c);

// How many rows of each source go to each expert.
struct Routing {
  uint32_t experts = 0;
  std::vector<uint32_t> counts;  // [source][expert]

  [[nodiscard]] uint32_t sources() const { return static_cast<uint32_t>(counts.size()) / experts; }
  [[nodiscard]] uint32_t at(uint32_t source, uint32_t expert) const {
    return counts[size_t{source} * experts + expert];
  }
  [[nodiscard]] uint32_t tokens(uint32_t expert) const {
    uint32_t sum = 0;
    for (uint32_t s = 0; s < sources(); ++s) sum += at(s, expert);
    return sum;
  }
};

class Dispatcher {
 public:
  // own: experts of each process. most: rows that may come or go.
  Dispatcher(SimDevice* device, CUstream stream, uint32_t rank, uint32_t own, uint32_t hidden,
             size_t most);

  // For the calls below.
  void Use(const Routing* routing) { routing_ = routing; }
  [[nodiscard]] uint32_t Rows() const;  // that come to this process

  // Makes rows (`of` says which) and brings them to their experts. The digest takes in what came.
  void Bring(uint64_t of, CUdeviceptr to, uint64_t* digest);
  // Makes rows where their experts are.
  void MakeHere(uint64_t of, CUdeviceptr to);
  // Brings rows back to where they are from. The digest takes in what came.
  void Return(CUdeviceptr from, uint64_t* digest);
  // Takes in rows as they lie by expert.
  void Digest(CUdeviceptr rows, uint64_t* digest);

 private:
  void Fill(CUdeviceptr to, uint64_t of, uint64_t rows);
  // Floats between this process and each other: as the source, and as the experts' owner.
  [[nodiscard]] std::vector<size_t> AsSource() const;
  [[nodiscard]] std::vector<size_t> AsOwner() const;
  // Copies runs of one expert and source between the order by source and the order by expert.
  void Reorder(CUdeviceptr by_source, CUdeviceptr by_expert, bool to_expert);

  SimDevice& device_;
  const CUstream stream_;
  const uint32_t rank_;
  const uint32_t own_;
  const uint32_t hidden_;
  const Routing* routing_ = nullptr;
  const CUdeviceptr here_;   // rows of this source
  const CUdeviceptr there_;  // rows for this owner, by source
};

}  // namespace rewire::bench
