#include "tests/simgpu/cuda/context.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "tests/simgpu/cuda/capture.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/memory.h"
#include "tests/simgpu/cuda/stream.h"

namespace simgpu {

ThreadContexts& ContextStack() {
  static_assert(std::is_trivially_destructible_v<ThreadContexts>);
  thread_local ThreadContexts stack{};
  return stack;
}

uint64_t ThreadNumber() {
  static std::atomic<uint64_t> next{1};
  thread_local const uint64_t number = next.fetch_add(1);
  return number;
}

Context* FindContext(CUcontext handle) {
  const auto found = State().contexts.find(handle);
  return found == State().contexts.end() ? nullptr : found->second.get();
}

CUresult CurrentContext(Context** context) {
  const auto& stack = ContextStack();
  if (stack.empty() || stack.back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *context = FindContext(stack.back());
  return *context == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

CUresult CreateContext(Device* device, unsigned flags, bool primary, Context** context) {
  SIMGPU_TRY(OpenMemory(device));
  auto created = std::make_unique<Context>();
  *context = created.get();
  created->handle = NewHandle<CUcontext>();
  created->device = device;
  created->flags = flags;
  created->primary = primary;
  State().contexts[created->handle] = std::move(created);
  const CUstream legacy = AddStream(*context, StreamKind::kLegacy, 0);
  (*context)->legacy = State().streams[legacy].get();
  return CUDA_SUCCESS;
}

CUstream AddStream(Context* context, StreamKind kind, int priority) {
  JoinRetired();
  const auto handle = NewHandle<CUstream>();
  auto stream = std::make_shared<Stream>(context, context->device, kind, priority, State().next_id);
  context->streams.push_back(stream.get());
  State().streams[handle] = std::move(stream);
  return handle;
}

void RemoveStream(CUstream handle) {
  const auto found = State().streams.find(handle);
  if (found == State().streams.end()) return;  // another thread was faster
  const std::shared_ptr<Stream> stream = found->second;
  const bool idle = stream->last() == nullptr;
  State().streams.erase(found);
  ForgetAnswers();
  State().retired.push_back(stream);
  stream->Close();
  while (idle && !stream->finished()) WaitForProgress();  // its thread has no work left
  JoinRetired();
}

Stream* PerThreadStream(Context* context) {
  CUstream& handle = context->per_thread[ThreadNumber()];
  if (handle == nullptr) handle = AddStream(context, StreamKind::kBlocking, 0);
  return State().streams[handle].get();
}

void WaitForContext(Context* context) {
  std::vector<MarkerRef> pending;
  for (const Stream* stream : context->streams) pending.push_back(stream->last());
  for (const MarkerRef& marker : pending) WaitFor(marker);
}

void DestroyContext(Context* context) {
  const CUcontext handle = context->handle;
  WaitForContext(context);
  Driver& driver = State();
  const auto found = driver.contexts.find(handle);
  if (found == driver.contexts.end()) return;  // another thread was faster
  const std::unique_ptr<Context> owned = std::move(found->second);
  driver.contexts.erase(found);
  std::vector<CUstream> streams;
  for (const auto& [stream_handle, stream] : driver.streams) {
    if (stream->context == context) streams.push_back(stream_handle);
  }
  for (const CUstream stream : streams) RemoveStream(stream);
  std::erase_if(driver.events,
                [context](const auto& entry) { return entry.second->context == context; });
  while (!context->streams.empty()) {  // their threads are ending
    WaitForProgress();
    JoinRetired();
  }
  FreeMemoryOf(handle);
}

}  // namespace simgpu
