// Reads, writes and hashes bytes in runs; see state_memory.h.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/state/stream/content.h"
#include "reconfig/state/stream/device_hash.h"
#include "reconfig/state/stream/state_memory.h"

namespace rewire::state {
namespace {

// A multiple of the hash's word size, which the staging memory can take.
constexpr size_t kPackedBytes = 1 << 20;
// CU_DEVICE_ATTRIBUTE_MAX_PITCH of every device.
constexpr uint64_t kMaxPitch = INT32_MAX;

CUdeviceptr Address(const StatePlace& place) { return reinterpret_cast<CUdeviceptr>(place.data); }

// Calls copy(run, packed, n) for each run, or part of one, of packed bytes.
template <typename Copy>
void ForEachRun(const StateRuns& place, uint64_t at, size_t bytes, const Copy& copy) {
  char* const begin = place.place().data;
  place.runs.ForEach(at, bytes,
                     [&](uint64_t offset, uint64_t to, uint64_t n, uint64_t pitch, uint64_t rows) {
                       for (uint64_t row = 0; row < rows; ++row)
                         copy(begin + offset + row * pitch, to + row * n, n);
                     });
}

}  // namespace

absl::Status StateMemory::UsePacked(CUcontext context) {
  REWIRE_RETURN_IF_ERROR(UseDevice(context));
  if (packed_ != 0) return absl::OkStatus();
  const CUresult result = driver_->MemAlloc(&packed_, kPackedBytes);
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(driver_->Describe("cuMemAlloc", result));
}

absl::Status StateMemory::CopyRows(CUdeviceptr from, uint64_t from_pitch, CUdeviceptr to,
                                   uint64_t to_pitch, uint64_t bytes, uint64_t rows) {
  if (rows > 1 && std::max(from_pitch, to_pitch) <= kMaxPitch) {
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.srcPitch = from_pitch;
    copy.dstDevice = to;
    copy.dstPitch = to_pitch;
    copy.WidthInBytes = bytes;
    copy.Height = rows;
    // A driver may refuse pitches that cuMemAllocPitch() has not chosen.
    if (driver_->Memcpy2DAsync(&copy, stream_) == CUDA_SUCCESS) return absl::OkStatus();
  }
  for (uint64_t row = 0; row < rows; ++row) {
    const CUresult result =
        driver_->MemcpyDtoDAsync(to + row * to_pitch, from + row * from_pitch, bytes, stream_);
    if (result != CUDA_SUCCESS) {
      return absl::InternalError(driver_->Describe("cuMemcpyDtoDAsync", result));
    }
  }
  return absl::OkStatus();
}

absl::Status StateMemory::CopyPacked(Way way, const StateRuns& place, uint64_t at, size_t bytes) {
  const CUdeviceptr begin = Address(place.place());
  absl::Status status;
  place.runs.ForEach(
      at, bytes, [&](uint64_t offset, uint64_t to, uint64_t n, uint64_t pitch, uint64_t rows) {
        if (!status.ok()) return;
        status = way == Way::kPack ? CopyRows(begin + offset, pitch, packed_ + to, n, n, rows)
                                   : CopyRows(packed_ + to, n, begin + offset, pitch, n, rows);
      });
  return status;
}

absl::Status StateMemory::SettleAfter(absl::Status enqueued, const char* operation, size_t bytes) {
  const absl::Status waited = Settle(operation, bytes);
  return enqueued.ok() ? waited : enqueued;
}

absl::Status StateMemory::Visit(const StateRuns& from, uint64_t at, size_t bytes, const Use& use) {
  if (from.runs.contiguous()) return Visit(from.place().At(at), bytes, use);
  const bool on_device = from.part.kind == MemoryKind::kDevice;
  if (on_device) REWIRE_RETURN_IF_ERROR(UsePacked(from.part.context));
  packed_here_.resize(on_device ? 0 : kPackedBytes);
  for (size_t done = 0; done < bytes;) {
    const size_t n = std::min(kPackedBytes, bytes - done);
    if (on_device) {
      absl::Status s = CopyPacked(Way::kPack, from, at + done, n);
      if (s.ok()) {
        const CUresult result = driver_->MemcpyDtoHAsync(staging_, packed_, n, stream_);
        if (result != CUDA_SUCCESS) {
          s = absl::InternalError(driver_->Describe("cuMemcpyDtoHAsync", result));
        }
      }
      REWIRE_RETURN_IF_ERROR(SettleAfter(std::move(s), "copy from device memory", n));
      REWIRE_RETURN_IF_ERROR(use(static_cast<const char*>(staging_), done, n));
    } else {
      char* const packed = packed_here_.data();
      ForEachRun(from, at + done, n, [packed](const char* run, uint64_t to, uint64_t size) {
        std::memcpy(packed + to, run, size);
      });
      REWIRE_RETURN_IF_ERROR(use(packed, done, n));
    }
    done += n;
  }
  return absl::OkStatus();
}

absl::Status StateMemory::Write(const void* from, const StateRuns& to, uint64_t at, size_t bytes) {
  if (to.runs.contiguous()) return Write(from, to.place().At(at), bytes);
  const auto* const packed = static_cast<const char*>(from);
  if (to.part.kind == MemoryKind::kHost) {
    ForEachRun(to, at, bytes, [packed](char* run, uint64_t source, uint64_t n) {
      std::memcpy(run, packed + source, n);
    });
    return absl::OkStatus();
  }
  REWIRE_RETURN_IF_ERROR(UsePacked(to.part.context));
  for (size_t done = 0; done < bytes;) {
    const size_t n = std::min(kPackedBytes, bytes - done);
    if (packed + done != staging_) std::memcpy(staging_, packed + done, n);
    const CUresult result = driver_->MemcpyHtoDAsync(packed_, staging_, n, stream_);
    absl::Status s = result == CUDA_SUCCESS
                         ? CopyPacked(Way::kUnpack, to, at + done, n)
                         : absl::InternalError(driver_->Describe("cuMemcpyHtoDAsync", result));
    REWIRE_RETURN_IF_ERROR(SettleAfter(std::move(s), "copy to device memory", n));
    done += n;
  }
  return absl::OkStatus();
}

absl::Status StateMemory::Hash(const StateRuns& place, uint64_t at, size_t bytes, uint64_t offset,
                               uint64_t* content) {
  if (place.runs.contiguous()) return Hash(place.place().At(at), bytes, offset, content);
  return CopyHashed(place, {}, at, bytes, offset, content);
}

absl::Status StateMemory::CopyHashed(const StateRuns& from, const StateRuns& to, uint64_t at,
                                     size_t bytes, uint64_t offset, uint64_t* content) {
  const bool copies = to.part.data != nullptr;
  if (copies && from.runs.contiguous() && to.runs.contiguous()) {
    return CopyHashed(from.place().At(at), to.place().At(at), bytes, offset, content);
  }
  *content = 0;
  const bool device = from.part.kind == MemoryKind::kDevice && bytes > 0 &&
                      (!copies || to.part.kind == MemoryKind::kDevice);
  if (device) {
    REWIRE_RETURN_IF_ERROR(Warm(from.part.context));
    REWIRE_RETURN_IF_ERROR(UsePacked(from.part.context));
  }
  if (!device || hash_ == nullptr) {
    return Visit(from, at, bytes, [&](const char* data, size_t done, size_t n) {
      *content += HashContent(data, n, offset + done);
      return copies ? Write(data, to, at + done, n) : absl::OkStatus();
    });
  }
  const auto check = [&](const char* call, CUresult result) {
    return result == CUDA_SUCCESS ? absl::OkStatus()
                                  : absl::InternalError(driver_->Describe(call, result));
  };
  absl::Status s =
      check("cuMemsetD8Async", driver_->MemsetD8Async(sum_, 0, sizeof(uint64_t), stream_));
  for (size_t done = 0; s.ok() && done < bytes; done += kPackedBytes) {
    const size_t n = std::min(kPackedBytes, bytes - done);
    s = CopyPacked(Way::kPack, from, at + done, n);
    if (s.ok()) {
      s = check("cuLaunchKernel", hash_->Launch(packed_, n, offset + done, sum_, stream_));
    }
    if (s.ok() && copies) s = CopyPacked(Way::kUnpack, to, at + done, n);
  }
  if (s.ok()) {
    s = check("cuMemcpyDtoHAsync",
              driver_->MemcpyDtoHAsync(staging_, sum_, sizeof(uint64_t), stream_));
  }
  REWIRE_RETURN_IF_ERROR(SettleAfter(std::move(s), "hash of device memory", bytes));
  std::memcpy(content, staging_, sizeof(uint64_t));
  return absl::OkStatus();
}

}  // namespace rewire::state
