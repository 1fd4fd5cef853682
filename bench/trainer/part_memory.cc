#include "bench/trainer/part_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"

namespace rewire::trainer {
namespace {

// A tensor's memory has at most this number of chunks, which are freed separately.
constexpr size_t kMostChunks = 32;

CUmemAllocationProp PropertiesOn(CUdevice device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return properties;
}

size_t RoundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

bool PartMemory::SupportedBy(const Device& device) {
  const CudaDriver& driver = device.driver();
  const auto has = [&](CUdevice_attribute attribute) {
    int value = 0;
    return driver.DeviceGetAttribute(&value, attribute, device.ordinal()) == CUDA_SUCCESS &&
           value != 0;
  };
  return driver.MemCreate != nullptr &&
         has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
         has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
}

absl::StatusOr<std::unique_ptr<PartMemory>> PartMemory::Create(const Device& device, uint64_t bytes,
                                                               uint64_t begin, uint64_t end) {
  const CudaDriver& driver = device.driver();
  const CUmemAllocationProp properties = PropertiesOn(device.ordinal());
  size_t granularity = 0;
  CUresult r = driver.MemGetAllocationGranularity(&granularity, &properties,
                                                  CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (r != CUDA_SUCCESS) {
    return absl::UnavailableError(driver.Describe("cuMemGetAllocationGranularity", r));
  }
  const size_t chunk = RoundUp(std::max<size_t>(bytes / kMostChunks, 1), granularity);
  const size_t chunks = RoundUp(std::max<uint64_t>(bytes, 1), chunk) / chunk;
  std::unique_ptr<PartMemory> m(new PartMemory(device, chunk, chunks));
  r = driver.MemAddressReserve(&m->base_, chunk * chunks, 0, 0, 0);
  if (r != CUDA_SUCCESS) {
    return absl::ResourceExhaustedError(driver.Describe("cuMemAddressReserve", r));
  }
  if (!m->Reach(begin, end)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room on the device for ", end - begin, " bytes"));
  }
  m->Adopt(begin, end);
  REWIRE_RETURN_IF_ERROR(device.Zero(m->at(begin), end - begin));
  REWIRE_RETURN_IF_ERROR(device.Synchronize());
  return m;
}

PartMemory::~PartMemory() {
  if (base_ == 0 || !device_.Enter().ok()) return;
  for (size_t i = 0; i < mapped_.size(); ++i) {
    if (mapped_[i]) device_.driver().MemUnmap(base_ + i * chunk_, chunk_);
  }
  device_.driver().MemAddressFree(base_, chunk_ * mapped_.size());
}

bool PartMemory::MapChunk(size_t index) {
  const CudaDriver& driver = device_.driver();
  const CUmemAllocationProp properties = PropertiesOn(device_.ordinal());
  const CUdeviceptr at = base_ + index * chunk_;
  CUmemGenericAllocationHandle handle = 0;
  if (driver.MemCreate(&handle, chunk_, &properties, 0) != CUDA_SUCCESS) return false;
  const bool mapped = driver.MemMap(at, chunk_, 0, handle, 0) == CUDA_SUCCESS;
  driver.MemRelease(handle);  // the mapping holds the memory
  const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  mapped_[index] = mapped && driver.MemSetAccess(at, chunk_, &access, 1) == CUDA_SUCCESS;
  if (mapped && !mapped_[index]) driver.MemUnmap(at, chunk_);
  return mapped_[index];
}

bool PartMemory::Reach(uint64_t begin, uint64_t end) {
  if (!device_.Enter().ok()) return false;
  bool all = true;
  {
    MutexLock lock(&mutex_);
    ++reached_;
    for (size_t i = begin / chunk_; begin < end && i * chunk_ < end && all; ++i) {
      all = mapped_[i] || MapChunk(i);
    }
  }
  if (!all) Drop();
  return all;
}

void PartMemory::Drop() {
  {
    MutexLock lock(&mutex_);
    --reached_;
  }
  Trim();
}

void PartMemory::Adopt(uint64_t begin, uint64_t end) {
  MutexLock lock(&mutex_);
  --reached_;
  begin_ = begin;
  end_ = end;
}

void PartMemory::Trim() {
  if (!device_.Enter().ok()) return;
  MutexLock lock(&mutex_);
  if (reached_ > 0) return;
  for (size_t i = 0; i < mapped_.size(); ++i) {
    const bool kept = i * chunk_ < end_ && (i + 1) * chunk_ > begin_ && begin_ < end_;
    if (!mapped_[i] || kept) continue;
    device_.driver().MemUnmap(base_ + i * chunk_, chunk_);
    mapped_[i] = false;
  }
}

}  // namespace rewire::trainer
