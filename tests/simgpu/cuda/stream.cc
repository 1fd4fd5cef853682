#include "tests/simgpu/cuda/stream.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <string>

#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/memory.h"

namespace simgpu {

Stream::Stream(Context* context, Device* device, StreamKind kind, int priority, uint64_t id)
    : context(context), device(device), kind(kind), priority(priority), id(id) {}

Stream::~Stream() {
  if (thread_.joinable()) thread_.join();
}

MarkerRef Stream::Enqueue(Operation operation) {
  if (CaptureOf(this) != nullptr) {
    auto dropped = std::make_shared<Marker>();
    dropped->done = true;
    return dropped;
  }
  if (kind == StreamKind::kLegacy) {
    for (Stream* other : context->streams) {
      if (other->kind == StreamKind::kNonBlocking) continue;
      if (MarkerRef marker = other->last()) operation.after.push_back(std::move(marker));
    }
  } else if (kind == StreamKind::kBlocking && context->legacy != nullptr) {
    if (MarkerRef marker = context->legacy->last()) operation.after.push_back(std::move(marker));
  }
  if (State().settings.one_queue) {
    if (device->queue_tail != nullptr) operation.after.push_back(device->queue_tail);
    operation.begun = device->queue_tail = std::make_shared<Marker>();
  }
  operation.done = std::make_shared<Marker>();
  MarkerRef done = last_ = operation.done;
  if (queue_.empty() && operation.work == nullptr && Ready(operation)) {
    clock_ = done->clock = Start(operation);
    if (operation.begun != nullptr) operation.begun->done = true;
    done->done = true;
    done->at = Now();
    return done;
  }
  queue_.push_back(std::move(operation));
  if (!thread_.joinable()) {
    finished_ = false;
    thread_ = std::thread([this] { Run(); });
    const std::string name = "simgpu" + std::to_string(device->ordinal) + "-s" + std::to_string(id);
    ::pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
  }
  wake_.NotifyOne();
  return done;
}

void Stream::Close() {
  closing_ = true;
  wake_.NotifyOne();
}

bool Stream::Ready(const Operation& operation) const {
  for (const MarkerRef& marker : operation.after) {
    if (!marker->done) return false;
  }
  const auto slots = static_cast<size_t>(State().settings.kernel_slots);
  return !operation.kernel || slots == 0 || device->running_kernels.size() < slots;
}

uint64_t Stream::Start(const Operation& operation) const {
  uint64_t start = clock_;
  for (const MarkerRef& marker : operation.after) start = std::max(start, marker->clock);
  return start;
}

void Stream::RunFront() {
  Operation& operation = queue_.front();  // only this thread removes the operation
  while (!Ready(operation)) WaitForProgress();
  if (operation.begun != nullptr) {
    operation.begun->done = true;
    NotifyProgress();
  }
  auto& running = device->running_kernels;
  if (operation.kernel) running.push_back(operation.done);
  uint64_t clock = Start(operation) + operation.cost;
  if (operation.work != nullptr) {
    driver_mutex.Unlock();
    operation.work(&clock);
    driver_mutex.Lock();
  }
  if (operation.kernel) running.erase(std::find(running.begin(), running.end(), operation.done));
  clock_ = operation.done->clock = clock;
  operation.done->done = true;
  operation.done->at = Now();
  queue_.pop_front();
  NotifyProgress();
}

void Stream::Run() {
  // Signals of the process must go to the application's threads.
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  driver_mutex.Lock();
  while (true) {
    while (queue_.empty() && !closing_) {
      wake_.WaitUntil(&driver_mutex, Now() + rewire::seconds(60));
    }
    if (queue_.empty()) break;
    RunFront();
  }
  finished_ = true;
  NotifyProgress();  // the thread that destroys the context waits for this thread
  driver_mutex.Unlock();
}

CUresult FindStream(CUstream handle, Stream** stream) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    Context* context = nullptr;
    SIMGPU_TRY(CurrentContext(&context));
    *stream = handle == CU_STREAM_PER_THREAD ? PerThreadStream(context) : context->legacy;
    return CUDA_SUCCESS;
  }
  const auto found = State().streams.find(handle);
  if (found == State().streams.end()) return CUDA_ERROR_INVALID_HANDLE;
  *stream = found->second.get();
  return CUDA_SUCCESS;
}

CUresult FindStreamForWork(CUstream handle, Stream** stream) {
  SIMGPU_TRY(FindStream(handle, stream));
  return CheckWorkAgainstCapture(*stream);
}

CUresult FindStreamForWait(CUstream handle, Stream** stream) {
  SIMGPU_TRY(FindStream(handle, stream));
  return CheckWaitAgainstCapture(*stream);
}

void JoinRetired() {
  // A finished thread never takes the lock again, so joining it under the lock cannot block.
  std::erase_if(State().retired, [](const auto& stream) {
    if (!stream->finished()) return false;
    std::erase(stream->context->streams, stream.get());
    return true;
  });
}

void WaitForRunningKernels(Device* device) {
  const std::vector<MarkerRef> running = device->running_kernels;
  for (const MarkerRef& marker : running) WaitFor(marker);
}

}  // namespace simgpu
