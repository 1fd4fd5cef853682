// A framework's work around a layer of experts, over NCCL and on one stream: rows go to their
// experts' owners and are sorted by expert; afterwards the rows go back. Thread-compatible.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "bench/moe-exec/sim_device.h"

namespace rewire::bench {

inline float* Floats(CUdeviceptr p) { return reinterpret_cast<float*>(static_cast<uintptr_t>(p)); }
// Returns a pseudorandom value in [-1, 1) that depends only on the arguments.
[[nodiscard]] float ValueOf(uint64_t a, uint64_t b, uint64_t c);

// Numbers of rows from each source for each expert.
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
  // max_rows: limit of the rows sent, and of those received. `device` must outlive the object.
  Dispatcher(SimDevice* device, CUstream stream, uint32_t rank, uint32_t experts_per_rank,
             uint32_t hidden, size_t max_rows);

  // Sets the routing for the calls below. `routing` must be valid and unchanged until the stream
  // has finished their work, which reads it.
  void Use(const Routing* routing) { routing_ = routing; }
  [[nodiscard]] uint32_t Rows() const;  // rows that come to this process

  // The calls below only put work on the stream. `*digest` must be valid until the work ends.
  //
  // Makes this source's rows from `seed`, sends them to their experts' owners, and adds the
  // received rows to the digest.
  void Dispatch(uint64_t seed, CUdeviceptr to, uint64_t* digest);
  // Makes the rows at their experts' owner, without a transfer.
  void MakeHere(uint64_t seed, CUdeviceptr to);
  // Sends rows back to their sources, and adds the received rows to the digest.
  void Combine(CUdeviceptr from, uint64_t* digest);
  // Adds the rows, in the order by expert, to the digest.
  void Digest(CUdeviceptr rows, uint64_t* digest);

 private:
  void Fill(CUdeviceptr to, uint64_t of, uint64_t rows);
  // Return, per process, the floats that this process sends as a source or receives as an owner.
  [[nodiscard]] std::vector<size_t> AsSource() const;
  [[nodiscard]] std::vector<size_t> AsOwner() const;
  // Copies runs of one expert and source between the order by source and the order by expert.
  void Reorder(CUdeviceptr by_source, CUdeviceptr by_expert, bool to_expert);

  SimDevice& device_;
  const CUstream stream_;
  const uint32_t rank_;
  const uint32_t experts_per_rank_;
  const uint32_t hidden_;
  const Routing* routing_ = nullptr;
  const CUdeviceptr source_rows_;  // rows of this source
  const CUdeviceptr owner_rows_;   // rows for this owner, by source
};

}  // namespace rewire::bench
