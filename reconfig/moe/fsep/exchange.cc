#include "reconfig/moe/fsep/exchange.h"

#include <dlfcn.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/status_macros.h"

namespace rewire::moe::fsep {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 50;  // limit for a device's slots

absl::Status Check(const Shape& shape) {
  const uint64_t devices = uint64_t{shape.topology.nodes} * shape.topology.per_node;
  if (devices == 0 || devices > INT32_MAX || shape.rank >= devices) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank=", shape.rank, ": must be below devices=", devices));
  }
  const uint64_t slots = uint64_t{shape.capacity} * devices;
  if (shape.experts == 0 || shape.experts > slots) {
    return absl::InvalidArgumentError(
        absl::StrCat("experts=", shape.experts, ": must be 1 to ", slots, " (slots)"));
  }
  if (shape.elements == 0 || shape.weight_bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat("elements=", shape.elements,
                                                   " weight_bytes=", shape.weight_bytes,
                                                   ": must each be at least 1"));
  }
  if (shape.elements > kMostBytes / slots / std::max(shape.weight_bytes, 4u)) {
    return absl::InvalidArgumentError(
        absl::StrCat("elements=", shape.elements, " weight_bytes=", shape.weight_bytes, ": ", slots,
                     " chunks of a device must have at most ", kMostBytes, " bytes"));
  }
  return absl::OkStatus();
}

// Returns an upper bound of the words of a layer's tables, with s slot chunks and t <= 2 s staging
// chunks. There are s sums of slots of one expert, t of gathered chunks and s of experts, each with
// three words. The sources are s slots, two per gathered chunk (the chunk and an own chunk), and
// per slot an expert's shard and a node's sum.
uint64_t MostTableWords(const Shape& shape) {
  const uint64_t s = shape.SlotChunks();
  const uint64_t t = StagingChunks(shape.topology, shape.capacity);
  return 3 * (s + t + s) + s + 2 * t + 2 * s;
}

CUdeviceptr Address(const MemoryBases& bases, Chunk chunk, uint64_t chunk_bytes) {
  return bases[static_cast<size_t>(chunk.memory)] + chunk.index * chunk_bytes;
}

void* Pointer(CUdeviceptr p) { return reinterpret_cast<void*>(static_cast<uintptr_t>(p)); }

}  // namespace

absl::StatusOr<NcclCalls> NcclCalls::OfProcess() {
  void* const loaded = ::dlsym(RTLD_DEFAULT, "ncclSend") != nullptr
                           ? nullptr
                           : ::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  NcclCalls calls;
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    void* const found = ::dlsym(loaded == nullptr ? RTLD_DEFAULT : loaded, name);
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(found);
    if (found == nullptr) missing += std::string(missing.empty() ? "" : ", ") + name;
  };
  find("ncclGetErrorString", &calls.GetErrorString);
  find("ncclCommCount", &calls.CommCount);
  find("ncclCommUserRank", &calls.CommUserRank);
  find("ncclGroupStart", &calls.GroupStart);
  find("ncclGroupEnd", &calls.GroupEnd);
  find("ncclSend", &calls.Send);
  find("ncclRecv", &calls.Recv);
  // The owner of a communicator keeps the library loaded.
  if (loaded != nullptr) ::dlclose(loaded);
  if (missing.empty()) return calls;
  return absl::FailedPreconditionError(
      absl::StrCat("NCCL is not loaded in this process, or lacks ", missing));
}

absl::StatusOr<std::unique_ptr<Exchange>> Exchange::Create(const CudaDriver& driver,
                                                           const NcclCalls& nccl, ncclComm_t comm,
                                                           const Shape& shape, uint32_t layers) {
  REWIRE_RETURN_IF_ERROR(fsep::Check(shape));
  std::unique_ptr<Exchange> exchange(new Exchange(driver, nccl, comm, shape));
  REWIRE_RETURN_IF_ERROR(exchange->CheckCommunicator());
  REWIRE_ASSIGN_OR_RETURN(exchange->sum_, ChunkSum::Load(driver, shape.gradient));
  REWIRE_ASSIGN_OR_RETURN(
      exchange->staging_,
      DeviceMemory::Allocate(
          driver, StagingChunks(shape.topology, shape.capacity) * shape.GradientChunk()));
  exchange->layers_.resize(layers);
  for (Layer& layer : exchange->layers_) {
    REWIRE_ASSIGN_OR_RETURN(
        layer.sums, DeviceMemory::Allocate(driver, MostTableWords(shape) * sizeof(uint64_t)));
  }
  return exchange;
}

absl::Status Exchange::CheckCommunicator() const {
  int count = 0, rank = 0;
  REWIRE_RETURN_IF_ERROR(Check("ncclCommCount", nccl_.CommCount(comm_, &count)));
  REWIRE_RETURN_IF_ERROR(Check("ncclCommUserRank", nccl_.CommUserRank(comm_, &rank)));
  const uint32_t devices = shape_.topology.devices();
  if (static_cast<uint32_t>(count) == devices && static_cast<uint32_t>(rank) == shape_.rank) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("communicator: rank=", rank, " of ", count,
                                                 ": must be rank ", shape_.rank, " of ", devices));
}

absl::Status Exchange::Place(uint32_t number, const Placement& placement) {
  if (number >= layers_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer=", number, ": must be below layers=", layers_.size()));
  }
  if (Has(number, placement)) return absl::OkStatus();
  Layer& layer = layers_[number];
  if (placement.capacity != shape_.capacity) {
    return absl::InvalidArgumentError(absl::StrCat(
        "placement: slots per device=", placement.capacity, ": must be ", shape_.capacity));
  }
  REWIRE_RETURN_IF_ERROR(moe::Check(placement, shape_.topology, shape_.experts));
  ExchangePlan plan = PlanExchange(shape_.topology, placement, shape_.rank);
  std::vector<uint64_t> words, begins;
  for (const Step& step : plan.reduce) {
    begins.push_back(words.size());
    const std::vector<uint64_t> table = SumTable(step.sums, shape_.GradientChunk());
    words.insert(words.end(), table.begin(), table.end());
  }
  CUresult copied =
      driver_.MemcpyHtoD(layer.sums.address(), words.data(), words.size() * sizeof(uint64_t));
  // A copy from pageable memory may return before its DMA has ended (CUDA, API synchronization
  // behavior), and the streams of Reduce() do not wait for the legacy stream.
  if (copied == CUDA_SUCCESS) {
    copied = WaitForStream(driver_, CU_STREAM_LEGACY, kDevicePatience);
  }
  if (copied != CUDA_SUCCESS) {
    layer.placement = {};
    return absl::InternalError(
        DescribeWait(driver_, "copy of a placement's tables", copied, kDevicePatience));
  }
  layer.placement = placement;
  layer.plan = std::move(plan);
  layer.table_begins = std::move(begins);
  return absl::OkStatus();
}

absl::Status Exchange::CheckPlaced(uint32_t layer) const {
  if (layer < layers_.size() && !layers_[layer].placement.slots.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("layer ", layer, " has no placement"));
}

absl::Status Exchange::Restore(uint32_t number, CUdeviceptr shards, CUdeviceptr slots,
                               CUstream stream) {
  REWIRE_RETURN_IF_ERROR(CheckPlaced(number));
  const Layer& layer = layers_[number];
  const Buffers buffers{{shards, slots, 0}, shape_.WeightChunk()};
  for (const Step& step : layer.plan.restore) {
    REWIRE_RETURN_IF_ERROR(RunCopies(step, buffers, stream));
    REWIRE_RETURN_IF_ERROR(RunMessages(step, buffers, stream));
  }
  return absl::OkStatus();
}

absl::Status Exchange::Reduce(uint32_t number, CUdeviceptr slots, CUdeviceptr shards,
                              CUstream stream) {
  REWIRE_RETURN_IF_ERROR(CheckPlaced(number));
  const Layer& layer = layers_[number];
  const Buffers buffers{{shards, slots, staging_.address()}, shape_.GradientChunk()};
  for (size_t i = 0; i < layer.plan.reduce.size(); ++i) {
    const Step& step = layer.plan.reduce[i];
    if (!step.sums.empty()) {
      const CUdeviceptr table = layer.sums.address() + layer.table_begins[i] * sizeof(uint64_t);
      REWIRE_RETURN_IF_ERROR(
          sum_->Launch(table, step.sums.size(), shape_.elements, buffers.bases, stream));
    }
    REWIRE_RETURN_IF_ERROR(RunMessages(step, buffers, stream));
  }
  return absl::OkStatus();
}

absl::Status Exchange::RunCopies(const Step& step, const Buffers& buffers, CUstream stream) const {
  for (const Copy& copy : step.copies) {
    const CUresult result =
        driver_.MemcpyDtoDAsync(Address(buffers.bases, copy.to, buffers.chunk_bytes),
                                Address(buffers.bases, copy.from, buffers.chunk_bytes),
                                copy.chunks * buffers.chunk_bytes, stream);
    if (result != CUDA_SUCCESS) {
      return absl::InternalError(driver_.Describe("cuMemcpyDtoDAsync", result));
    }
  }
  return absl::OkStatus();
}

absl::Status Exchange::RunMessages(const Step& step, const Buffers& buffers,
                                   CUstream stream) const {
  if (step.sends.empty() && step.receives.empty()) return absl::OkStatus();
  const auto nccl_stream = reinterpret_cast<cudaStream_t>(stream);
  REWIRE_RETURN_IF_ERROR(Check("ncclGroupStart", nccl_.GroupStart()));
  absl::Status status;
  for (const Message& m : step.sends) {
    if (!status.ok()) break;
    const void* const data = Pointer(Address(buffers.bases, m.chunk, buffers.chunk_bytes));
    status = Check("ncclSend", nccl_.Send(data, buffers.chunk_bytes, ncclUint8,
                                          static_cast<int>(m.peer), comm_, nccl_stream));
  }
  for (const Message& m : step.receives) {
    if (!status.ok()) break;
    void* const data = Pointer(Address(buffers.bases, m.chunk, buffers.chunk_bytes));
    status = Check("ncclRecv", nccl_.Recv(data, buffers.chunk_bytes, ncclUint8,
                                          static_cast<int>(m.peer), comm_, nccl_stream));
  }
  // Every started group must be ended, also after an error.
  const absl::Status ended = Check("ncclGroupEnd", nccl_.GroupEnd());
  return status.ok() ? ended : status;
}

absl::Status Exchange::Check(const char* call, ncclResult_t result) const {
  if (result == ncclSuccess) return absl::OkStatus();
  if (result == ncclInProgress) {
    return absl::UnavailableError(
        absl::StrCat(call, ": the communicator of sharded experts must be blocking"));
  }
  return absl::UnavailableError(absl::StrCat(call, ": ", nccl_.GetErrorString(result)));
}

}  // namespace rewire::moe::fsep
