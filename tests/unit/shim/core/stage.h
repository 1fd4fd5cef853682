// One process from the core's view, without the preloaded library: a communicator with the issuing
// protocol of shim/preload/virtual_communicator.h, services with a counter of threads inside, and
// the fakes. Owned by the test's thread.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shim/core/shim_communicators.h"
#include "tests/unit/shim/core/fake_device.h"
#include "tests/unit/shim/core/fake_nccl.h"

namespace rewire::shim {

// Waits until the condition holds, for at most twenty seconds.
bool Eventually(const std::function<bool()>& condition, Duration within = seconds(20));

struct FakeServices {
  static const ShimServices* Get();
  static int live_generations();
  // For a test of the exit, after which nothing is freed.
  static void ForgetGenerations();
  static void SetReplayResult(ncclResult_t result);
  // A call tells the program of a loss.
  static void ReportLoss();
  // Whether the first operation on every generation registers a buffer or a window.
  static void SetRegisters(bool value);
};

class RecordedEvents : public elastic::CommunicatorEvents {
 public:
  void Created(const elastic::CommunicatorCreated& created) override;
  void Destroyed(const CommunicatorId& communicator, uint32_t rank) override;
  void Pinned(const CommunicatorId& communicator, const std::string& reason) override;
  bool ComesWithBuild(const CommunicatorId& communicator) override;
  bool Stopped() override;
  void Undecided(Epoch epoch) override;
  void Moved() override { moved.fetch_add(1); }

  Mutex mutex;
  std::vector<elastic::CommunicatorCreated> created REWIRE_GUARDED_BY(mutex);
  std::vector<CommunicatorId> destroyed REWIRE_GUARDED_BY(mutex);
  std::vector<std::string> pinned REWIRE_GUARDED_BY(mutex);  // the reasons
  std::vector<Epoch> undecided REWIRE_GUARDED_BY(mutex);
  bool joining REWIRE_GUARDED_BY(mutex) = false;
  bool stopped REWIRE_GUARDED_BY(mutex) = false;
  std::function<void()> on_undecided;
  std::atomic<int> moved{0};
};

// A done or entered callback for which a test waits.
template <typename T>
class Answer {
 public:
  std::function<void(T)> Callback() {
    return [state = state_](T value) {
      MutexLock lock(&state->mutex);
      state->value = std::move(value);
      state->changed.NotifyAll();
    };
  }
  [[nodiscard]] bool there() {
    MutexLock lock(&state_->mutex);
    return state_->value.has_value();
  }
  std::optional<T> Wait() {
    const Time until = Now() + seconds(20);
    MutexLock lock(&state_->mutex);
    while (!state_->value.has_value() && state_->changed.WaitUntil(&state_->mutex, until)) {
    }
    // The value is moved. Reference counts of a status shared with the other thread would change in
    // code that ThreadSanitizer does not see.
    return std::move(state_->value);
  }

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    std::optional<T> value;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// A virtual communicator and the thread that issues on it.
class Program {
 public:
  Program(ShimCommunicators* core, uint64_t id, bool blocking = true);
  ~Program();
  // Acts like the entry: returns the result of the caller's own call, or the core's.
  ncclResult_t Create(int ranks, int rank);
  ncclResult_t Issue(size_t tag, uintptr_t stream = 7);
  // Records a use, as the entry of a send does.
  void RecordSend() { comm.seen[static_cast<unsigned>(Collective::kSend)][ncclFloat32].store(1); }
  void Close();
  [[nodiscard]] ncclComm_t Real() const { return comm.current.load()->Real(); }
  [[nodiscard]] std::vector<size_t> OperationsOf(ncclComm_t real) const;

  VirtualCommunicator comm;

 private:
  ShimCommunicators* const core_;
  bool open_ = false;
};

class Stage : public ::testing::Test {
 protected:
  Stage();
  ~Stage() override;
  void Start(ShimCommunicators::Options options, bool abort_frees_at_group_end = true);

  static elastic::CommunicatorBuild BuildOf(const Program& program, uint32_t ranks, uint32_t rank,
                                            const std::string& usage = "");
  // Builds and waits.
  absl::Status Prepare(Epoch epoch, const std::vector<elastic::CommunicatorBuild>& builds,
                       Duration within = seconds(20));

  // Builds, pledges and decides one swap.
  void Swap(const Program& program, Epoch epoch, uint64_t warm, uint64_t cut);
  bool Pledged(Epoch epoch, const std::vector<Cut>& cuts) {
    return !core_->Pledge(epoch, cuts).has_value();
  }
  // Returns why the cuts are refused; empty if they are accepted.
  std::string WhyNot(Epoch epoch, const std::vector<Cut>& cuts) {
    const std::optional<elastic::CutRefusal> refusal = core_->Pledge(epoch, cuts);
    return refusal ? refusal->reason : "";
  }
  elastic::Position PositionOf(const Program& program);
  // Waits until the program's communicator is on the epoch's generation; returns its host waits.
  std::optional<uint64_t> HostWaits(const Program& program, Epoch epoch);
  std::vector<elastic::GenerationId> Old();
  // Destroys retired generations, and waits.
  bool RetireAll();
  // Returns whether a thread of this process may get back a priority that it had.
  static bool MayRaisePriority();
  // Returns the calls of NCCL so far, for example "init 1".
  static std::vector<std::string> Calls();

  // The thread of an interrupted build may outlive the test, so no device is destroyed.
  static FakeDevice& NewDevice() {
    static auto* const devices = new std::deque<FakeDevice>;
    return devices->emplace_back();
  }
  FakeDevice& device_ = NewDevice();
  RecordedEvents events_;
  std::unique_ptr<ShimCommunicators> core_;
};

}  // namespace rewire::shim
