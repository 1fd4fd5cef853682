// One rank of one communicator in a run of `./dev bench swap --mode`: issues operations, verifies
// every result, and names each operation to the spy (spy/current_operation.h). Owned by one thread.
#pragma once

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/storm/job_folder.h"
#include "bench/storm/pinned_memory.h"
#include "bench/storm/slot.h"
#include "bench/swap/mode_plan.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::bench {

// The failure that ends the run.
struct LaneFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The time of one operation of a timed lane, from the call to the end on the stream.
struct TimedOperation {
  StepKind kind;
  uint64_t index;  // among the lane's operations
  uint64_t ns;
};

class ModeLane {
 public:
  // rank: in the communicator. context: of the rank's device.
  ModeLane(const LanePlan& plan, int rank, const CudaDriver* cuda, CUcontext context);
  ~ModeLane();
  ModeLane(const ModeLane&) = delete;
  ModeLane& operator=(const ModeLane&) = delete;

  // Creates the communicator, also after Destroy(); a call for several ranks belongs into a group.
  void Create(const JobFolder& folder);
  // Waits until a non-blocking communicator is no longer in progress.
  void Settle();
  // Issues the next operation. In the caller's group the operation is fetched later, by Fetch().
  void Issue(bool in_group);
  void Fetch();
  // Waits for the streams and verifies all operations since the last call.
  void Verify();
  // The value that the rank gives to an all-reduce with maximum; Agreed() waits for the result.
  void Vote(int32_t value);
  [[nodiscard]] int32_t Agreed();
  void Destroy();

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] uint64_t made() const { return made_; }
  [[nodiscard]] uint64_t issued() const { return issued_; }
  [[nodiscard]] uint64_t verified() const { return verified_; }
  [[nodiscard]] uint64_t wrong() const { return wrong_; }
  [[nodiscard]] const std::vector<TimedOperation>& times() const { return times_; }

 private:
  void Check(const char* call, ncclResult_t result, bool in_group);
  void CheckCuda(const char* call, CUresult result) const;
  // Names the operation to the spy.
  void Announce(const void* input, const void* output) const;

  const LanePlan plan_;
  const int rank_;
  const CudaDriver* const cuda_;
  const CUcontext context_;
  ncclComm_t comm_ = nullptr;
  std::vector<CUstream> streams_;
  std::vector<std::vector<std::unique_ptr<Slot>>> slots_;  // by stream
  std::vector<Slot*> pending_;                             // not verified yet
  Slot* last_ = nullptr;                                   // issued, not fetched yet
  CUdeviceptr vote_ = 0;
  std::optional<PinnedMemory> host_vote_;
  uint64_t made_ = 0;  // communicators
  uint64_t issued_ = 0, verified_ = 0, wrong_ = 0;
  std::vector<TimedOperation> times_;  // of the first operations
};

}  // namespace rewire::bench
