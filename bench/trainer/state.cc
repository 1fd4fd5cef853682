#include "bench/trainer/state.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "bench/trainer/bfloat16.h"
#include "bench/trainer/chunks.h"
#include "bench/trainer/optimizer.h"
#include "reconfig/base/hash.h"
#include "reconfig/base/short_turns.h"
#include "reconfig/base/status_macros.h"
#include "rewire/rewire.h"

namespace rewire::trainer {

absl::StatusOr<std::unique_ptr<TrainingState>> TrainingState::Create(const Args& args,
                                                                     const Device& device,
                                                                     const Model<float>& model,
                                                                     int slots, int slot) {
  std::unique_ptr<TrainingState> s(new TrainingState(args, device, model.layout()));
  s->slots = slots;
  s->slot = slot;
  s->decays.resize(s->elements());
  for (const Parameter& p : model.layout().all()) {
    std::fill_n(s->decays.begin() + static_cast<ptrdiff_t>(p.offset), p.size(), p.decays ? 1 : 0);
  }
  REWIRE_RETURN_IF_ERROR(s->Allocate(static_cast<uint64_t>(args.state_mb) << 18));
  return s;
}

absl::Status TrainingState::Allocate(uint64_t ballast_elements) {
  const uint64_t padded = elements() + kMaxSlots;
  const size_t gradient_bytes = exact_ ? 8 : 4;
  const auto add = [&](const char* name, uint64_t count, size_t element_bytes) -> absl::Status {
    StateTensor t;
    t.elements = count;
    t.element_bytes = element_bytes;
    t.sharded = zero1_;
    const Range part = Part(count);
    if (t.sharded && PartMemory::SupportedBy(device_)) {
      REWIRE_ASSIGN_OR_RETURN(
          t.memory, PartMemory::Create(device_, count * element_bytes, part.begin * element_bytes,
                                       part.end * element_bytes));
      t.data = t.memory->at(part.begin * element_bytes);
    } else {
      REWIRE_ASSIGN_OR_RETURN(t.buffer,
                              DeviceBuffer::Allocate(device_, part.size() * element_bytes));
      t.data = t.buffer.at();
    }
    tensors.emplace(name, std::move(t));
    return absl::OkStatus();
  };
  for (const char* name : {"master", "first", "second"}) {
    REWIRE_RETURN_IF_ERROR(add(name, elements(), 4));
  }
  if (ballast_elements > 0) REWIRE_RETURN_IF_ERROR(add("ballast", ballast_elements, 4));

  StateTensor gradient;
  gradient.elements = elements();
  gradient.element_bytes = gradient_bytes;
  gradient.sharded = zero1_;
  gradient.transient = true;
  // A reduce-scatter writes a whole chunk, even if the part is shorter.
  gradient.capacity = padded * gradient_bytes;
  REWIRE_ASSIGN_OR_RETURN(gradient.buffer, DeviceBuffer::Allocate(device_, gradient.capacity));
  gradient.data = gradient.buffer.at();
  tensors.emplace("gradient", std::move(gradient));

  if (zero1_) {
    REWIRE_ASSIGN_OR_RETURN(full_gradient,
                            DeviceBuffer::Allocate(device_, padded * gradient_bytes));
  }
  REWIRE_ASSIGN_OR_RETURN(weights, DeviceBuffer::Allocate(device_, padded * 2));
  REWIRE_ASSIGN_OR_RETURN(small, DeviceBuffer::Allocate(device_, size_t{8} * 8));
  host_weights.resize(elements());
  REWIRE_ASSIGN_OR_RETURN(small_host, PinnedArray<int64_t>::Allocate(device_, 8));
  REWIRE_ASSIGN_OR_RETURN(gradient_host, PinnedArray<int64_t>::Allocate(device_, elements()));
  REWIRE_ASSIGN_OR_RETURN(master_host, PinnedArray<float>::Allocate(device_, elements()));
  REWIRE_ASSIGN_OR_RETURN(first_host, PinnedArray<float>::Allocate(device_, elements()));
  REWIRE_ASSIGN_OR_RETURN(second_host, PinnedArray<float>::Allocate(device_, elements()));
  REWIRE_ASSIGN_OR_RETURN(weight_bits_, PinnedArray<uint16_t>::Allocate(device_, elements()));
  return absl::OkStatus();
}

Range TrainingState::Part(uint64_t count) const {
  if (!zero1_) return {0, count};
  Range r;
  rewireShard(count, static_cast<uint32_t>(slots), static_cast<uint32_t>(slot), &r.begin, &r.end);
  return r;
}

absl::Status TrainingState::Initialise(Communicator& comm, uint64_t seed) {
  const Range mine = Part(elements());
  std::fill_n(master_host.data(), mine.size(), 0.0f);
  for (const Parameter& p : layout_.all()) {
    const uint64_t first = std::max(p.offset, mine.begin);
    const uint64_t last = std::min(p.offset + p.size(), mine.end);
    for (uint64_t i = first; i < last; ++i) {
      master_host[i - mine.begin] =
          static_cast<float>(Model<float>::Initial(p, i - p.offset, seed));
    }
  }
  REWIRE_RETURN_IF_ERROR(
      device_.CopyIn(tensors.at("master").at(), master_host.data(), mine.size() * 4));
  if (const auto ballast = tensors.find("ballast"); ballast != tensors.end()) {
    const Range part = Part(ballast->second.elements);
    REWIRE_RETURN_IF_ERROR(ForEachChunk(device_, ballast->second.at(), part.size(),
                                        ChunkAccess::kWrite,
                                        [&](uint64_t at, std::span<float> values) -> absl::Status {
                                          for (size_t i = 0; i < values.size(); ++i) {
                                            values[i] = BallastInitial(part.begin + at + i);
                                          }
                                          return absl::OkStatus();
                                        }));
  }
  return PublishWeights(comm, master_host.data());
}

absl::Status TrainingState::PublishWeights(Communicator& comm, const float* masters) {
  const Range mine = Part(elements());
  for (uint64_t i = 0; i < mine.size(); ++i) weight_bits_[i] = ToBfloat16(masters[i]);
  REWIRE_RETURN_IF_ERROR(
      device_.CopyIn(weights.at(mine.begin * 2), weight_bits_.data(), mine.size() * 2));
  if (zero1_) {
    REWIRE_RETURN_IF_ERROR(comm.AllGather(weights.at(), Chunk(), 2, slot, ncclBfloat16));
    REWIRE_RETURN_IF_ERROR(comm.Wait());
    return RefreshWeights();
  }
  REWIRE_RETURN_IF_ERROR(device_.Synchronize());
  for (uint64_t i = 0; i < elements(); ++i) host_weights[i] = FromBfloat16(weight_bits_[i]);
  return absl::OkStatus();
}

absl::Status TrainingState::PublishLoadedWeights(Communicator& comm) {
  REWIRE_RETURN_IF_ERROR(
      device_.CopyOut(master_host.data(), tensors.at("master").at(), Part(elements()).size() * 4));
  REWIRE_RETURN_IF_ERROR(device_.Synchronize());
  return PublishWeights(comm, master_host.data());
}

absl::Status TrainingState::RefreshWeights() {
  REWIRE_RETURN_IF_ERROR(device_.CopyOut(weight_bits_.data(), weights.at(), elements() * 2));
  REWIRE_RETURN_IF_ERROR(device_.Synchronize());
  for (uint64_t i = 0; i < elements(); ++i) host_weights[i] = FromBfloat16(weight_bits_[i]);
  return absl::OkStatus();
}

absl::Status TrainingState::ReduceSmall(Communicator& comm, size_t count) {
  REWIRE_RETURN_IF_ERROR(device_.CopyIn(small.at(), small_host.data(), count * 8));
  REWIRE_RETURN_IF_ERROR(comm.AllReduce(small.at(), count, ncclInt64));
  REWIRE_RETURN_IF_ERROR(device_.CopyOut(small_host.data(), small.at(), count * 8));
  return comm.Wait();
}

absl::Status TrainingState::HashPart(const StateTensor& tensor, uint64_t salt,
                                     uint64_t* sum) const {
  const Range part = Part(tensor.elements);
  // One word per element: a shard may begin at any element.
  return ForEachChunk(device_, tensor.at(), part.size(), ChunkAccess::kRead,
                      [&](uint64_t at, std::span<float> values) -> absl::Status {
                        uint64_t local = 0;
                        for (size_t i = 0; i < values.size(); ++i) {
                          local += MixWord(std::bit_cast<uint32_t>(values[i]),
                                           (salt << 48) + part.begin + at + i);
                        }
                        *sum += local;
                        return absl::OkStatus();
                      });
}

absl::StatusOr<uint64_t> TrainingState::Hash(Communicator& comm) {
  uint64_t sum = 0, salt = 0;
  // A tensor that every member holds whole is counted once.
  for (const auto& [name, tensor] : tensors) {
    ++salt;
    if (tensor.transient || (!tensor.sharded && slot != 0)) continue;
    REWIRE_RETURN_IF_ERROR(HashPart(tensor, salt, &sum));
  }
  if (slot == 0) {
    REWIRE_RETURN_IF_ERROR(RefreshWeights());
    sum += ContentHash(weight_bits_.data(), elements() * 2, uint64_t{100} << 48);
    sum += ContentHash(running.data(), sizeof running, uint64_t{101} << 48);
    sum += MixWord(progress.step, uint64_t{102} << 48);
  }
  small_host[0] = std::bit_cast<int64_t>(sum);
  REWIRE_RETURN_IF_ERROR(ReduceSmall(comm, 1));
  return std::bit_cast<uint64_t>(small_host[0]);
}

bool TrainingState::ReachPart(const std::string& tensor, Range elements) {
  const auto found = tensors.find(tensor);
  if (found == tensors.end() || found->second.memory == nullptr) return false;
  const size_t size = found->second.element_bytes;
  return found->second.memory->Reach(elements.begin * size, elements.end * size);
}

void* TrainingState::NewPart(const std::string& tensor, uint64_t bytes) const {
  const auto found = tensors.find(tensor);
  if (found == tensors.end() || found->second.memory != nullptr || !device_.Enter().ok()) {
    return nullptr;
  }
  const size_t room = std::max<size_t>({bytes, found->second.capacity, 16});
  CUdeviceptr p = 0;
  if (device_.driver().MemAlloc(&p, room) != CUDA_SUCCESS) return nullptr;
  return reinterpret_cast<void*>(static_cast<uintptr_t>(p));
}

void TrainingState::FreePart(const std::string& tensor, void* part) {
  const auto found = tensors.find(tensor);
  if (found != tensors.end() && found->second.memory != nullptr) {
    found->second.memory->Drop();
  } else if (device_.Enter().ok()) {
    device_.driver().MemFree(reinterpret_cast<uintptr_t>(part));
  }
}

void TrainingState::AdoptPart(const std::string& tensor, void* part, Range elements) {
  const auto found = tensors.find(tensor);
  if (found == tensors.end()) return;
  StateTensor& t = found->second;
  t.data = static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(part));
  if (t.memory != nullptr) {
    t.memory->Adopt(elements.begin * t.element_bytes, elements.end * t.element_bytes);
    old_parts_.reduced.push_back(t.memory.get());
    return;
  }
  DeviceBuffer fresh = DeviceBuffer::Adopt(device_, t.data);
  std::swap(t.buffer, fresh);
  old_parts_.buffers.push_back(std::move(fresh));
}

void TrainingState::FreeOldParts() {
  OldParts retired = std::exchange(retired_parts_, std::exchange(old_parts_, {}));
  if (retired.buffers.empty() && retired.reduced.empty()) return;
  if (freeing_.joinable()) freeing_.join();
  freeing_ = std::thread([this, parts = std::move(retired)]() mutable {
    pthread_setname_np(pthread_self(), "free-old-parts");
    setpriority(PRIO_PROCESS, 0, 19);
    TakeShortTurns();
    if (!device_.Enter().ok()) return;
    parts.buffers.clear();
    for (PartMemory* memory : parts.reduced) memory->Trim();
  });
}

TrainingState::~TrainingState() {
  if (freeing_.joinable()) freeing_.join();
}

}  // namespace rewire::trainer
