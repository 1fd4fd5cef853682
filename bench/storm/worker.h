// One thread of a rank: runs its script over its own communicators and verifies every result. Each
// thread has one stream. The Watchdog limits every wait. Owned by that thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/storm/board.h"
#include "bench/storm/job_folder.h"
#include "bench/storm/pinned_memory.h"
#include "bench/storm/script.h"
#include "bench/storm/slot.h"

namespace rewire::bench {

struct WorkerOptions {
  int rank = 0, ranks = 1, thread = 0;
  uint64_t seed = 0;
  Features features;
};

struct WorkerResult {
  RankStatus status = kDone;
  uint64_t steps = 0;
  uint64_t operations = 0;  // operations whose results were verified
};

class Worker {
 public:
  Worker(const WorkerOptions& options, const CudaDriver* cuda, const JobFolder* folder,
         Place* place);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  WorkerResult Run();

 private:
  // Exception that ends the script; Run() reports it.
  struct Stop {
    RankStatus status;
    std::string text;
  };
  struct Live {
    Member member;
    int rank = 0;
    ncclComm_t handle = nullptr;
    void* registration = nullptr;
    ncclWindow_t window = nullptr;
  };

  // Throws Stop with kLost if NCCL reports an error; waits while the call is in progress.
  void Check(const char* call, ncclResult_t result, const Live* live);
  void CheckCuda(const char* call, bool succeeded);
  void WaitUntilReady(const char* call, const Live& live);
  [[nodiscard]] ncclResult_t AsyncError(const Live& live) const;

  void Do(const Step& step);
  void Create(int number, const Member& member);
  void Split(const Step& step);
  void Shrink(const Step& step);
  void Remove(const Step& step);
  void Register(const Step& step);
  void OpenWindow(const Step& step);
  void CloseWindow(Live* live);
  void Pair(const Step& step);
  // Returns the controller's request, which all ranks receive at the same step.
  [[nodiscard]] Word Vote(const Step& step);
  // Fills a slot; the caller issues the operation.
  Slot* Prepare(const Live& live, StepKind kind, const Step& step, uint64_t variant);
  void Collective(const Live& live, const Step& step);
  // Waits for the stream and verifies the slots.
  void Synchronize();
  [[nodiscard]] Live* Find(int communicator);

  const WorkerOptions options_;
  const CudaDriver* const cuda_;
  const JobFolder* const folder_;
  Place* const place_;
  Script script_;
  CUstream stream_ = nullptr;
  std::optional<PinnedMemory> vote_;
  std::map<int, Live> live_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::pair<Slot*, int>> pending_;  // with the communicator's number
  WorkerResult result_;
};

}  // namespace rewire::bench
