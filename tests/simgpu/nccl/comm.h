// The communicator behind an ncclComm_t. Owned by the API's threads; the service and progress
// threads see only the parts that they receive. Only destroy or abort frees it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/mutex.h"
#include "tests/simgpu/nccl/abort.h"
#include "tests/simgpu/nccl/bootstrap.h"
#include "tests/simgpu/nccl/driver.h"
#include "tests/simgpu/nccl/net.h"
#include "tests/simgpu/nccl/plan.h"
#include "tests/simgpu/nccl/progress.h"
#include "tests/simgpu/nccl/reduction.h"
#include "tests/simgpu/nccl/service.h"

namespace simnccl {

class Tuner;

// The caller's ncclConfig_t with defaults filled in.
struct Config {
  bool blocking = true;
  std::string net_name;
  std::string comm_name;
  bool split_share = false;
  bool shrink_share = false;
  int traffic_class = NCCL_CONFIG_UNDEF_INT;
  int min_ctas = 1;
  int max_ctas = 32;
};

// Counts activities that must end before a communicator is freed: launched kernels, which share
// ownership of the count because they may leave last, and calls inside the communicator.
class UnderWay {
 public:
  void Add() REWIRE_EXCLUDES(mutex_);
  void Remove() REWIRE_EXCLUDES(mutex_);
  [[nodiscard]] bool None() REWIRE_EXCLUDES(mutex_);
  // Returns false if the deadline passed.
  bool WaitNone(rewire::Time deadline) REWIRE_EXCLUDES(mutex_);

 private:
  rewire::Mutex mutex_;
  rewire::CondVar cond_;
  int count_ REWIRE_GUARDED_BY(mutex_) = 0;
};

struct Registration {
  void* buffer;
  size_t bytes;
};

// A group that runs on its own thread for non-blocking communicators.
struct AsyncRun {
  std::thread thread;
  rewire::Mutex mutex;
  bool joined REWIRE_GUARDED_BY(mutex) = false;
  void Join() REWIRE_EXCLUDES(mutex);
  ~AsyncRun();
};

}  // namespace simnccl

struct ncclWindow_vidmem {
  void* buffer;
  size_t bytes;
};

struct ncclComm {
  static constexpr uint64_t kMagic = 0x73696d636f6d6d21;
  uint64_t magic = kMagic;

  int rank = -1;
  int nranks = 0;
  int device = 0;
  uint64_t hash = 0;
  int version = 0;
  simnccl::Config config;
  const simnccl::Driver* driver = nullptr;
  simnccl::CuContext context = nullptr;
  bool retained_primary = false;

  std::shared_ptr<simnccl::Abort> abort = std::make_shared<simnccl::Abort>();
  // InProgress while a non-blocking call runs; else the first asynchronous error.
  std::atomic<ncclResult_t> async_result{ncclSuccess};
  std::atomic<bool> initialized{false};
  std::atomic<bool> finalized{false};
  std::atomic<bool> revoked{false};
  // The progress thread has ended: nothing can be launched any more.
  std::atomic<bool> stopped{false};

  simnccl::Bootstrap bootstrap;
  std::unique_ptr<simnccl::Service> service;
  std::unique_ptr<simnccl::Progress> progress;
  std::shared_ptr<simnccl::Net> net;
  void* net_context = nullptr;
  bool net_initialized = false;
  int net_device = 0;
  int net_ptr_type = 0;
  std::unique_ptr<simnccl::Tuner> tuner;

  simnccl::Connections connections;
  std::vector<uint64_t> device_memory;  // the service thread frees it
  size_t buffer_bytes = 0;

  // Calls inside this communicator, and whether an abort has taken over freeing the communicator.
  simnccl::UnderWay callers;
  std::atomic<bool> claimed{false};

  std::shared_ptr<simnccl::UnderWay> launched = std::make_shared<simnccl::UnderWay>();
  simnccl::CuEvent last_event = nullptr;
  cudaStream_t last_stream = nullptr;
  bool launched_before = false;

  uint64_t split_count = 0;
  // These distinguish the bootstraps of all children; the ranks that a shrink excludes do not call.
  uint64_t child_count = 0;
  std::map<std::vector<int>, uint64_t> shrinks;  // key: the survivors

  rewire::Mutex mutex;
  std::map<int, simnccl::Operator> operators REWIRE_GUARDED_BY(mutex);
  std::map<int, ncclDataType_t> operator_types REWIRE_GUARDED_BY(mutex);
  int next_operator REWIRE_GUARDED_BY(mutex) = ncclNumOps;
  std::set<simnccl::Registration*> registrations REWIRE_GUARDED_BY(mutex);
  std::set<ncclWindow_t> windows REWIRE_GUARDED_BY(mutex);
  std::shared_ptr<simnccl::AsyncRun> run REWIRE_GUARDED_BY(mutex);
  std::atomic<bool> completing{false};  // a call joins `run`

  ncclComm();
  ~ncclComm();
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;
};

namespace simnccl {

// Returns the limit of a call's wait for its peers on this communicator (SIMNCCL_TIMEOUT_MS).
Patience PatienceOf(const ncclComm* comm);

// CheckComm refuses a null, foreign or freed handle. Ready also refuses a communicator that another
// call still works on or that has failed.
ncclResult_t CheckComm(const ncclComm* comm, const char* call, const char* argument);
ncclResult_t CheckReady(ncclComm* comm);
// Joins a run that has ended. Ends the process if another thread does the same at this moment: NCCL
// frees the run in both (ncclGroupJobComplete).
void CompleteRun(ncclComm* comm);

}  // namespace simnccl
