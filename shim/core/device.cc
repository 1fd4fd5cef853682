#include "shim/core/device.h"

#include <cstdlib>
#include <string>

#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/status_macros.h"

namespace rewire::shim {

namespace {

// With fewer hardware queues, streams share a queue and kernels wait for kernels of other streams
// (Megatron sets one queue).
constexpr int kQueues = 8;

class DriverDevice : public Device {
 public:
  explicit DriverDevice(const CudaDriver* driver) : driver_(driver) {}

  DeviceContext CurrentContext() override;
  DeviceContext ContextOf(int device) override;
  void MakeCurrent(DeviceContext context) override;
  absl::Status Enter(DeviceContext context) override;
  absl::StatusOr<uint64_t> FreeBytes() override;
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* memory) override;
  bool Write(void* to, std::span<const uint8_t> from, cudaStream_t stream) override;
  bool Read(const void* from, std::span<uint8_t> to, cudaStream_t stream) override;
  absl::StatusOr<cudaStream_t> MakeStream() override;
  void DestroyStream(cudaStream_t stream) override;
  unsigned ResidentBlocks() override;
  absl::StatusOr<DeviceEvent> MakeEvent() override;
  void DestroyEvent(DeviceEvent event) override;
  bool Record(DeviceEvent event, cudaStream_t stream) override;
  bool Destroyed(cudaStream_t stream) override;
  bool MakeWait(cudaStream_t stream, DeviceEvent event) override;
  EventState Query(DeviceEvent event) override;
  bool Capturing(cudaStream_t stream) override;

 private:
  [[nodiscard]] absl::Status Check(const char* call, CUresult result) const;

  const CudaDriver* const driver_;
};

absl::Status DriverDevice::Check(const char* call, CUresult result) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const std::string text = driver_->Describe(call, result);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? absl::ResourceExhaustedError(text)
                                            : absl::InternalError(text);
}

DeviceContext DriverDevice::CurrentContext() {
  CUcontext context = nullptr;
  return driver_->CtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

DeviceContext DriverDevice::ContextOf(int device) {
  CUdevice current = 0;
  CUdevice wanted = 0;
  if (driver_->DeviceGet(&wanted, device) != CUDA_SUCCESS) return nullptr;
  if (CurrentContext() != nullptr && driver_->CtxGetDevice(&current) == CUDA_SUCCESS &&
      current == wanted) {
    return CurrentContext();
  }
  // Kept until the process ends, as in Enter().
  CUcontext primary = nullptr;
  return driver_->DevicePrimaryCtxRetain(&primary, wanted) == CUDA_SUCCESS ? primary : nullptr;
}

void DriverDevice::MakeCurrent(DeviceContext context) {
  driver_->CtxSetCurrent(static_cast<CUcontext>(context));
}

absl::Status DriverDevice::Enter(DeviceContext context) {
  auto* chosen = static_cast<CUcontext>(context);
  if (chosen == nullptr) {
    // A program that uses the CUDA runtime and has not touched the device yet will use the primary
    // context of the first device. The context is kept until the process ends, as in the runtime.
    REWIRE_RETURN_IF_ERROR(Check("cuInit", driver_->Init(0)));
    CUdevice device = 0;
    REWIRE_RETURN_IF_ERROR(Check("cuDeviceGet", driver_->DeviceGet(&device, 0)));
    REWIRE_RETURN_IF_ERROR(
        Check("cuDevicePrimaryCtxRetain", driver_->DevicePrimaryCtxRetain(&chosen, device)));
  }
  REWIRE_RETURN_IF_ERROR(Check("cuCtxSetCurrent", driver_->CtxSetCurrent(chosen)));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  return Check("cuThreadExchangeStreamCaptureMode",
               driver_->ThreadExchangeStreamCaptureMode(&mode));
}

absl::StatusOr<uint64_t> DriverDevice::FreeBytes() {
  size_t free_bytes = 0;
  size_t total = 0;
  REWIRE_RETURN_IF_ERROR(Check("cuMemGetInfo", driver_->MemGetInfo(&free_bytes, &total)));
  return free_bytes;
}

absl::StatusOr<void*> DriverDevice::Allocate(size_t bytes) {
  CUdeviceptr pointer = 0;
  REWIRE_RETURN_IF_ERROR(Check("cuMemAlloc", driver_->MemAlloc(&pointer, bytes)));
  return reinterpret_cast<void*>(pointer);
}

void DriverDevice::Free(void* memory) { driver_->MemFree(reinterpret_cast<CUdeviceptr>(memory)); }

// CUDA copies pageable host memory before it returns (H to D), or waits for the copy (D to H).
bool DriverDevice::Write(void* to, std::span<const uint8_t> from, cudaStream_t stream) {
  return driver_->MemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(to), from.data(), from.size(),
                                  stream) == CUDA_SUCCESS;
}

bool DriverDevice::Read(const void* from, std::span<uint8_t> to, cudaStream_t stream) {
  return driver_->MemcpyDtoHAsync(to.data(), reinterpret_cast<CUdeviceptr>(from), to.size(),
                                  stream) == CUDA_SUCCESS;
}

absl::StatusOr<cudaStream_t> DriverDevice::MakeStream() {
  CUstream stream = nullptr;
  REWIRE_RETURN_IF_ERROR(
      Check("cuStreamCreateWithPriority",
            driver_->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0)));
  return static_cast<cudaStream_t>(stream);
}

void DriverDevice::DestroyStream(cudaStream_t stream) { driver_->StreamDestroy(stream); }

unsigned DriverDevice::ResidentBlocks() {
  // A value that is not a number counts as the worst value.
  const char* queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (queues != nullptr && std::atoi(queues) < kQueues) return 0;
  const char* one_by_one = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (one_by_one != nullptr && one_by_one[0] != '0') return 0;
  CUdevice device = 0;
  int concurrent = 0;
  int multiprocessors = 0;
  if (driver_->CtxGetDevice(&device) != CUDA_SUCCESS ||
      driver_->DeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, device) !=
          CUDA_SUCCESS ||
      driver_->DeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                  device) != CUDA_SUCCESS ||
      concurrent == 0 || multiprocessors < 0) {
    return 0;
  }
  return static_cast<unsigned>(multiprocessors);
}

absl::StatusOr<DeviceEvent> DriverDevice::MakeEvent() {
  CUevent event = nullptr;
  REWIRE_RETURN_IF_ERROR(
      Check("cuEventCreate", driver_->EventCreate(&event, CU_EVENT_DISABLE_TIMING)));
  return static_cast<DeviceEvent>(event);
}

void DriverDevice::DestroyEvent(DeviceEvent event) {
  driver_->EventDestroy(static_cast<CUevent>(event));
}

bool DriverDevice::Record(DeviceEvent event, cudaStream_t stream) {
  return driver_->EventRecord(static_cast<CUevent>(event), stream) == CUDA_SUCCESS;
}

bool DriverDevice::Destroyed(cudaStream_t stream) {
  const CUresult result = driver_->StreamQuery(stream);
  return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool DriverDevice::MakeWait(cudaStream_t stream, DeviceEvent event) {
  // The event is recorded outside the capture.
  const unsigned flags = Capturing(stream) ? CU_EVENT_WAIT_EXTERNAL : CU_EVENT_WAIT_DEFAULT;
  return driver_->StreamWaitEvent(stream, static_cast<CUevent>(event), flags) == CUDA_SUCCESS;
}

Device::EventState DriverDevice::Query(DeviceEvent event) {
  switch (driver_->EventQuery(static_cast<CUevent>(event))) {
    case CUDA_SUCCESS:
      return EventState::kDone;
    case CUDA_ERROR_NOT_READY:
      return EventState::kPending;
    default:
      return EventState::kFailed;
  }
}

bool DriverDevice::Capturing(cudaStream_t stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver_->StreamIsCapturing(stream, &status);
  // Work on the legacy stream would end the capture of a stream that synchronises with it.
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace

std::unique_ptr<Device> DeviceOf(const CudaDriver* driver) {
  return std::make_unique<DriverDevice>(driver);
}

}  // namespace rewire::shim
