// One thread of a rank of the loss benchmark, an ordinary NCCL program without Rewire calls. It
// repeats its plan's calls until the job ends or a call returns an error, then aborts its
// communicators. The watchdog of storm/board.h limits every wait. Owned by that thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/loss/call_record.h"
#include "bench/loss/lane_plan.h"
#include "bench/storm/board.h"
#include "bench/storm/job_folder.h"
#include "bench/storm/pinned_memory.h"
#include "reconfig/abi/cuda_types.h"
#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/cuda_driver.h"
#include "tests/sim/seeded_random.h"

namespace rewire::bench {

class Lane {
 public:
  // first: called when the lane has used its first communicator. failed: set by the first lane of
  // the process that gets an error; the others then end after their call, as a program does.
  Lane(LanePlan plan, int rank_of_job, uint64_t seed, const CudaDriver* cuda,
       const JobFolder* folder, const FaultPage* page, Place* place, std::function<void()> first,
       std::atomic<bool>* failed);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void Run();
  [[nodiscard]] const CallRecord& record() const { return record_; }
  [[nodiscard]] const LanePlan& plan() const { return plan_; }

 private:
  // Exception that ends the lane with the first error, its own or another lane's.
  struct Stop {};

  void Enter(CallKind kind);
  // Throws Stop if the result is an error; waits while the call is in progress.
  void Check(const char* call, ncclResult_t result, ncclComm_t comm);
  void WaitUntilReady(const char* call, ncclComm_t comm);
  void CheckCuda(const char* call, CUresult result);
  void StopIfAnotherFailed();
  void Compute();

  ncclComm_t Create();
  ncclComm_t Split(ncclComm_t parent);
  // Issues one operation and waits for its end. Returns whether some rank has seen the end of the
  // job, the same on all ranks of the communicator.
  bool Operate(ncclComm_t comm);
  void AwaitStream(ncclComm_t comm);
  void Ring(ncclComm_t comm);
  void Destroy(ncclComm_t comm);
  void Steady();
  void Churn();
  void Splits();
  void Idle();

  const LanePlan plan_;
  const int rank_;
  const CudaDriver* const cuda_;
  const JobFolder* const folder_;
  Place* const place_;
  const std::function<void()> first_;
  CallRecord record_;
  sim::SeededRandom random_;
  uint64_t created_ = 0, steps_ = 0;
  std::vector<ncclComm_t> open_;  // without child_
  // The child of a split. A member, because NCCL may store it after Split() has thrown.
  ncclComm_t child_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr data_ = 0;
  std::optional<PinnedMemory> host_;
  std::atomic<bool>* const failed_;
};

}  // namespace rewire::bench
