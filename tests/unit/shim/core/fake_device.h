// A device whose streams do nothing: it records the work put on them, and events complete when the
// test decides. As on a real device, a capture ends when an event is recorded on its stream.
// Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reconfig/base/mutex.h"
#include "shim/core/device.h"

namespace rewire::shim {

class FakeDevice : public Device {
 public:
  // Each thread begins in the context of device 0.
  DeviceContext CurrentContext() override { return current_ != nullptr ? current_ : this; }
  DeviceContext ContextOf(int device) override {
    return device == 0 ? this : reinterpret_cast<DeviceContext>(uintptr_t{0xc0de} + device);
  }
  void MakeCurrent(DeviceContext context) override { current_ = context; }
  absl::Status Enter(DeviceContext context) override {
    MutexLock lock(&mutex_);
    if (gone_) return absl::InternalError("the context is gone");
    current_ = context;
    return absl::OkStatus();
  }
  // Makes Enter() fail from now on, as after the program has released its device.
  void Lose() {
    MutexLock lock(&mutex_);
    gone_ = true;
  }
  absl::StatusOr<uint64_t> FreeBytes() override {
    MutexLock lock(&mutex_);
    return free_bytes_();
  }
  absl::StatusOr<void*> Allocate(size_t /*bytes*/) override {
    MutexLock lock(&mutex_);
    if (full_) return absl::ResourceExhaustedError("full");
    return this;
  }
  void SetFull(bool full) {
    MutexLock lock(&mutex_);
    full_ = full;
  }
  void Free(void* /*memory*/) override {
    MutexLock lock(&mutex_);
    ++freed_;
  }
  bool Write(void* /*to*/, std::span<const uint8_t> from, cudaStream_t /*stream*/) override {
    MutexLock lock(&mutex_);
    memory_.assign(from.begin(), from.end());
    return true;
  }
  // Reads what was written last, with the bits that other ranks add.
  bool Read(const void* /*from*/, std::span<uint8_t> to, cudaStream_t /*stream*/) override {
    MutexLock lock(&mutex_);
    const Time until = Now() + seconds(20);
    while (reads_held_ && changed_.WaitUntil(&mutex_, until)) {
    }
    for (size_t i = 0; i < to.size(); ++i) {
      to[i] = static_cast<uint8_t>((i < memory_.size() ? memory_[i] : 0) |
                                   (i < added_.size() ? added_[i] : 0));
    }
    return true;
  }
  void HoldReads(bool held) {
    MutexLock lock(&mutex_);
    reads_held_ = held;
    changed_.NotifyAll();
  }
  void AddToMemory(std::vector<uint8_t> bits) {
    MutexLock lock(&mutex_);
    added_ = std::move(bits);
  }
  absl::StatusOr<cudaStream_t> MakeStream() override {
    MutexLock lock(&mutex_);
    ++live_streams_;
    return reinterpret_cast<cudaStream_t>(uintptr_t{0x51de});
  }
  void DestroyStream(cudaStream_t /*stream*/) override {
    MutexLock lock(&mutex_);
    --live_streams_;
    if (on_destroy_stream_) on_destroy_stream_();
  }
  void OnDestroyStream(std::function<void()> call) {
    MutexLock lock(&mutex_);
    on_destroy_stream_ = std::move(call);
  }
  unsigned ResidentBlocks() override {
    MutexLock lock(&mutex_);
    return resident_blocks_;
  }
  absl::StatusOr<DeviceEvent> MakeEvent() override {
    MutexLock lock(&mutex_);
    ++live_events_;
    auto* event = reinterpret_cast<DeviceEvent>(++made_);
    contexts_[event] = CurrentContext();
    return event;
  }
  void DestroyEvent(DeviceEvent event) override {
    MutexLock lock(&mutex_);
    --live_events_;
    destroyed_.insert(event);
  }
  bool Record(DeviceEvent event, cudaStream_t stream) override {
    MutexLock lock(&mutex_);
    if (destroyed_.contains(event)) ++used_after_destroy_;
    if (capturing_.contains(stream) || destroyed_streams_.contains(stream)) return false;
    if (contexts_[event] != CurrentContext()) ++recorded_elsewhere_;
    log_.push_back(absl::StrCat("record ", reinterpret_cast<uintptr_t>(event), " on ",
                                reinterpret_cast<uintptr_t>(stream)));
    return true;
  }
  bool Destroyed(cudaStream_t stream) override {
    MutexLock lock(&mutex_);
    return destroyed_streams_.contains(stream);
  }
  bool MakeWait(cudaStream_t stream, DeviceEvent event) override {
    MutexLock lock(&mutex_);
    if (destroyed_.contains(event)) ++used_after_destroy_;
    log_.push_back(absl::StrCat("wait ", reinterpret_cast<uintptr_t>(event), " on ",
                                reinterpret_cast<uintptr_t>(stream)));
    return true;
  }
  EventState Query(DeviceEvent event) override {
    MutexLock lock(&mutex_);
    if (destroyed_.contains(event)) ++used_after_destroy_;
    ++queries_;
    return pending_ ? EventState::kPending : EventState::kDone;
  }
  bool Capturing(cudaStream_t stream) override {
    MutexLock lock(&mutex_);
    return capturing_.contains(stream);
  }

  void SetFreeBytes(uint64_t bytes) {
    SetFreeBytes([bytes] { return bytes; });
  }
  void SetFreeBytes(std::function<uint64_t()> bytes) {
    MutexLock lock(&mutex_);
    free_bytes_ = std::move(bytes);
  }
  void SetResidentBlocks(unsigned blocks) {
    MutexLock lock(&mutex_);
    resident_blocks_ = blocks;
  }
  int live_streams() {
    MutexLock lock(&mutex_);
    return live_streams_;
  }
  void SetPending(bool pending) {
    MutexLock lock(&mutex_);
    pending_ = pending;
  }
  void SetCapturing(uintptr_t stream, bool capturing) {
    MutexLock lock(&mutex_);
    auto* const handle = reinterpret_cast<cudaStream_t>(stream);
    if (capturing) {
      capturing_.insert(handle);
    } else {
      capturing_.erase(handle);
    }
  }
  // The program destroys one of its streams.
  void DestroyStreamOfProgram(uintptr_t stream) {
    MutexLock lock(&mutex_);
    destroyed_streams_.insert(reinterpret_cast<cudaStream_t>(stream));
  }
  void Log(const std::string& line) {
    MutexLock lock(&mutex_);
    log_.push_back(line);
  }
  std::vector<std::string> TakeLog() {
    MutexLock lock(&mutex_);
    return std::exchange(log_, {});
  }
  int queries() {
    MutexLock lock(&mutex_);
    return queries_;
  }
  int live_events() {
    MutexLock lock(&mutex_);
    return live_events_;
  }
  int freed() {
    MutexLock lock(&mutex_);
    return freed_;
  }
  // Returns how often an event was recorded while another context than its own was current.
  int recorded_elsewhere() {
    MutexLock lock(&mutex_);
    return recorded_elsewhere_;
  }
  int used_after_destroy() {
    MutexLock lock(&mutex_);
    return used_after_destroy_;
  }

 private:
  static inline thread_local DeviceContext current_ = nullptr;

  Mutex mutex_;
  std::function<uint64_t()> free_bytes_ REWIRE_GUARDED_BY(mutex_) = [] { return 1 << 30; };
  std::function<void()> on_destroy_stream_ REWIRE_GUARDED_BY(mutex_);
  bool pending_ REWIRE_GUARDED_BY(mutex_) = false;
  std::set<cudaStream_t> capturing_ REWIRE_GUARDED_BY(mutex_);
  std::set<cudaStream_t> destroyed_streams_ REWIRE_GUARDED_BY(mutex_);
  unsigned resident_blocks_ REWIRE_GUARDED_BY(mutex_) = 0;
  int live_streams_ REWIRE_GUARDED_BY(mutex_) = 0;
  uintptr_t made_ REWIRE_GUARDED_BY(mutex_) = 0;
  int live_events_ REWIRE_GUARDED_BY(mutex_) = 0;
  int freed_ REWIRE_GUARDED_BY(mutex_) = 0;
  int used_after_destroy_ REWIRE_GUARDED_BY(mutex_) = 0;
  int recorded_elsewhere_ REWIRE_GUARDED_BY(mutex_) = 0;
  std::map<DeviceEvent, DeviceContext> contexts_ REWIRE_GUARDED_BY(mutex_);
  int queries_ REWIRE_GUARDED_BY(mutex_) = 0;
  std::set<DeviceEvent> destroyed_ REWIRE_GUARDED_BY(mutex_);
  std::vector<std::string> log_ REWIRE_GUARDED_BY(mutex_);
  bool gone_ REWIRE_GUARDED_BY(mutex_) = false;
  bool full_ REWIRE_GUARDED_BY(mutex_) = false;
  bool reads_held_ REWIRE_GUARDED_BY(mutex_) = false;
  CondVar changed_;
  std::vector<uint8_t> memory_ REWIRE_GUARDED_BY(mutex_);
  std::vector<uint8_t> added_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire::shim
