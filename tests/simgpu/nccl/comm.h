// The simulated NCCL's communicator, to which an ncclComm_t points. Owned by the threads that call
// the API; the service and progress threads see only the parts that they receive. After its
// initialization a communicator is freed only by ncclCommDestroy or ncclCommAbort.
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

// Counts activities that must end before a communicator is freed: calls inside the communicator,
// and launched kernels. The kernels share ownership of the count, because a kernel may end last.
// Thread-safe.
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

// The run of a group of calls on non-blocking communicators, on its own thread. Thread-safe.
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
  // ncclInProgress while a non-blocking call runs; otherwise the first asynchronous error.
  std::atomic<ncclResult_t> async_result{ncclSuccess};
  std::atomic<bool> initialized{false};
  std::atomic<bool> finalized{false};
  std::atomic<bool> revoked{false};
  std::atomic<bool> suspended{false};
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
  std::vector<uint64_t> device_memory;  // freed by the service thread
  size_t buffer_bytes = 0;

  // Counts the calls inside this communicator. `claimed`: a destroy or an abort is freeing the
  // communicator already.
  simnccl::UnderWay callers;
  std::atomic<bool> claimed{false};

  std::shared_ptr<simnccl::UnderWay> launched = std::make_shared<simnccl::UnderWay>();
  // The last launch: its event and stream. A launch on another stream first waits for the event.
  simnccl::CuEvent last_event = nullptr;
  cudaStream_t last_stream = nullptr;
  bool launched_before = false;

  uint64_t split_count = 0;  // for a child's hash, as in NCCL
  // The numbers of splits and shrinks distinguish the bootstraps of the children. Shrinks are
  // counted for each set of survivors, because the excluded ranks do not call ncclCommShrink.
  uint64_t child_count = 0;
  std::map<std::vector<int>, uint64_t> shrinks;  // key: the survivors

  rewire::Mutex mutex;
  std::map<int, simnccl::Operator> operators REWIRE_GUARDED_BY(mutex);
  std::map<int, ncclDataType_t> operator_types REWIRE_GUARDED_BY(mutex);
  int next_operator REWIRE_GUARDED_BY(mutex) = ncclNumOps;
  std::set<simnccl::Registration*> registrations REWIRE_GUARDED_BY(mutex);
  std::set<ncclWindow_t> windows REWIRE_GUARDED_BY(mutex);
  std::shared_ptr<simnccl::AsyncRun> run REWIRE_GUARDED_BY(mutex);
  std::atomic<bool> completing{false};  // a thread is joining `run`

  ncclComm();
  ~ncclComm();
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;
};

namespace simnccl {

// Returns the limit of a call's wait for its peers on this communicator (SIMNCCL_TIMEOUT_MS).
Patience PatienceOf(const ncclComm* comm);

// CheckComm refuses a null, foreign or freed handle. CheckReady also refuses a communicator on
// which another call still works, or that has failed.
ncclResult_t CheckComm(const ncclComm* comm, const char* call, const char* argument);
ncclResult_t CheckReady(ncclComm* comm);
// Joins the ended run of a non-blocking communicator. Aborts the process if another thread is
// joining the run at the same time, because NCCL would free the run twice (ncclGroupJobComplete).
void CompleteRun(ncclComm* comm);

}  // namespace simnccl
