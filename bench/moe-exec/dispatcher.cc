#include "bench/moe-exec/dispatcher.h"

#include <cstring>

#include "reconfig/base/hash.h"

namespace rewire::bench {
namespace {

size_t Sum(const std::vector<size_t>& values) {
  return std::accumulate(values.begin(), values.end(), size_t{0});
}

}  // namespace

float ValueOf(uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t hash = MixWord(MixWord(MixWord(0x5eed, a), b), c);
  return static_cast<float>(static_cast<int64_t>(hash)) * 0x1p-63F;
}

Dispatcher::Dispatcher(SimDevice* device, CUstream stream, uint32_t rank, uint32_t experts_per_rank,
                       uint32_t hidden, size_t max_rows)
    : device_(*device),
      stream_(stream),
      rank_(rank),
      experts_per_rank_(experts_per_rank),
      hidden_(hidden),
      source_rows_(device->Allocate(max_rows * hidden * sizeof(float))),
      owner_rows_(device->Allocate(max_rows * hidden * sizeof(float))) {}

uint32_t Dispatcher::Rows() const {
  uint32_t rows = 0;
  for (uint32_t e = 0; e < experts_per_rank_; ++e)
    rows += routing_->tokens(rank_ * experts_per_rank_ + e);
  return rows;
}

std::vector<size_t> Dispatcher::AsSource() const {
  std::vector<size_t> floats(routing_->sources());
  for (uint32_t e = 0; e < routing_->experts; ++e) {
    floats[e / experts_per_rank_] += size_t{routing_->at(rank_, e)} * hidden_;
  }
  return floats;
}

std::vector<size_t> Dispatcher::AsOwner() const {
  std::vector<size_t> floats(routing_->sources());
  for (uint32_t s = 0; s < floats.size(); ++s) {
    for (uint32_t e = 0; e < experts_per_rank_; ++e) {
      floats[s] += size_t{routing_->at(s, rank_ * experts_per_rank_ + e)} * hidden_;
    }
  }
  return floats;
}

void Dispatcher::Fill(CUdeviceptr to, uint64_t of, uint64_t rows) {
  device_.Launch(stream_, 0, [this, to, of, values = rows * hidden_] {
    for (size_t i = 0; i < values; ++i) Floats(to)[i] = ValueOf(of, rank_ + 1, i);
  });
}

void Dispatcher::Reorder(CUdeviceptr by_source, CUdeviceptr by_expert, bool to_expert) {
  device_.Launch(stream_, 0, [this, by_source, by_expert, to_expert, floats = AsOwner()] {
    float* expert = Floats(by_expert);
    std::vector<float*> source{Floats(by_source)};
    for (const size_t f : floats) source.push_back(source.back() + f);
    for (uint32_t e = 0; e < experts_per_rank_; ++e) {
      for (uint32_t s = 0; s < floats.size(); ++s) {
        const size_t run = size_t{routing_->at(s, rank_ * experts_per_rank_ + e)} * hidden_;
        float* const to = to_expert ? expert : source[s];
        std::memcpy(to, to_expert ? source[s] : expert, run * sizeof(float));
        expert += run;
        source[s] += run;
      }
    }
  });
}

void Dispatcher::Digest(CUdeviceptr rows, uint64_t* digest) {
  device_.Launch(stream_, 0, [rows, digest, bytes = size_t{Rows()} * hidden_ * sizeof(float)] {
    *digest = MixWord(*digest, ContentHash(Floats(rows), bytes, 0));
  });
}

void Dispatcher::MakeHere(uint64_t seed, CUdeviceptr to) { Fill(to, seed, Rows()); }

void Dispatcher::Dispatch(uint64_t seed, CUdeviceptr to, uint64_t* digest) {
  const std::vector<size_t> sends = AsSource();
  Fill(source_rows_, seed, Sum(sends) / hidden_);
  device_.AllToAll(stream_, source_rows_, sends, owner_rows_, AsOwner());
  Reorder(owner_rows_, to, true);
  Digest(to, digest);
}

void Dispatcher::Combine(CUdeviceptr from, uint64_t* digest) {
  const std::vector<size_t> receives = AsSource();
  Reorder(owner_rows_, from, false);
  device_.AllToAll(stream_, owner_rows_, AsOwner(), source_rows_, receives);
  device_.Launch(stream_, 0, [this, digest, bytes = Sum(receives) * sizeof(float)] {
    *digest = MixWord(*digest, ContentHash(Floats(source_rows_), bytes, 0));
  });
}

}  // namespace rewire::bench
