#include "tests/simgpu/nccl/group.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "tests/simgpu/nccl/env.h"
#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/free.h"

namespace simnccl {
namespace {

// The calls that one outermost group has collected.
struct Batch {
  std::map<ncclComm*, CommWork> work;
  std::vector<ncclComm*> order;  // the communicators of `work`, in the order of their launches
  std::vector<Job> jobs;
  std::optional<bool> blocking;
  ncclResult_t error = ncclSuccess;
};

struct ThreadGroup {
  int depth = 0;
  Batch batch;
};

ThreadGroup& Current() {
  thread_local ThreadGroup group;
  return group;
}

ncclResult_t JoinBatch(Batch* batch, bool blocking) {
  if (!batch->blocking.has_value()) batch->blocking = blocking;
  if (*batch->blocking == blocking) return ncclSuccess;
  return Fail(ncclInvalidArgument,
              "Blocking and nonblocking communicators are not allowed in the same group.");
}

// Runs all calls concurrently, the last one on this thread. Returns the first error in the order of
// the list.
ncclResult_t RunTogether(const std::vector<std::function<ncclResult_t()>>& calls) {
  std::vector<ncclResult_t> results(calls.size(), ncclSuccess);
  std::vector<std::thread> threads;
  for (size_t i = 0; i + 1 < calls.size(); ++i) {
    threads.emplace_back([&, i] {
      ::pthread_setname_np(::pthread_self(), "simnccl-group");
      results[i] = calls[i]();
    });
  }
  if (!calls.empty()) results.back() = calls.back()();
  for (std::thread& thread : threads) thread.join();
  for (const ncclResult_t result : results) {
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

ncclResult_t RunJobs(const std::vector<Job>& jobs) {
  std::vector<std::pair<const void*, std::vector<const Job*>>> queues;
  for (const Job& job : jobs) {
    auto it = std::find_if(queues.begin(), queues.end(), [&](const auto& q) {
      return job.order != nullptr && q.first == job.order;
    });
    if (it == queues.end()) it = queues.insert(queues.end(), {job.order, {}});
    it->second.push_back(&job);
  }
  std::vector<std::function<ncclResult_t()>> calls;
  for (const auto& [order, queue] : queues) {
    calls.emplace_back([&queue = queue] {
      ncclResult_t first = ncclSuccess;
      for (const Job* job : queue) {
        const ncclResult_t result = job->run();
        if (first == ncclSuccess) first = result;
      }
      return first;
    });
  }
  return RunTogether(calls);
}

// Returns the work of a communicator. NCCL launches in the order of the hashes. Of equal hashes the
// communicator that joined last is the first, on all ranks: two shrinks of one parent have one
// hash.
CommWork& WorkOf(Batch* batch, ncclComm* comm) {
  const auto [place, joined] = batch->work.try_emplace(comm);
  if (joined) {
    const auto next =
        std::find_if(batch->order.begin(), batch->order.end(),
                     [&](const ncclComm* other) { return other->hash >= comm->hash; });
    batch->order.insert(next, comm);
  }
  return place->second;
}

ncclResult_t RunBatch(Batch* batch, ncclSimInfo_t* simulate) {
  SIMNCCL_TRY(RunJobs(batch->jobs));
  const std::vector<ncclComm*>& comms = batch->order;
  std::vector<std::function<ncclResult_t()>> connects;
  for (ncclComm* comm : comms) {
    CommWork* work = &batch->work[comm];
    SIMNCCL_TRY(Prepare(comm, work));
    if (!NeedsConnect(comm, *work)) continue;
    connects.emplace_back([=] { return Connect(comm, *work, simulate == nullptr); });
  }
  SIMNCCL_TRY(RunTogether(connects));
  if (simulate != nullptr) {
    float total = 0;
    for (ncclComm* comm : comms) total += Estimate(comm, batch->work[comm]);
    simulate->estimatedTime = total;
    return ncclSuccess;
  }
  for (ncclComm* comm : comms) SIMNCCL_TRY(Launch(comm, batch->work[comm]));
  return ncclSuccess;
}

std::set<ncclComm*> Involved(const Batch& batch) {
  std::set<ncclComm*> comms;
  for (const auto& [comm, work] : batch.work) comms.insert(comm);
  for (const Job& job : batch.jobs) {
    if (job.comm != nullptr) comms.insert(job.comm);
  }
  return comms;
}

// SIMNCCL_LATE_LAUNCH_US: delay of odd ranks before the first launch on a communicator.
void PutOffLaunch(const std::set<ncclComm*>& comms) {
  int64_t late = 0;
  if (EnvInt("SIMNCCL_LATE_LAUNCH_US", 0, 0, 10'000'000, &late) != ncclSuccess || late == 0) return;
  for (const ncclComm* comm : comms) {
    if (comm->initialized.load() && !comm->launched_before && comm->rank % 2 == 1) {
      std::this_thread::sleep_for(std::chrono::microseconds(late));
      return;
    }
  }
}

ncclResult_t StartAsync(Batch batch) {
  const std::set<ncclComm*> comms = Involved(batch);
  auto run = std::make_shared<AsyncRun>();
  // A thread that finds the run waits here until the run's thread can be joined.
  rewire::MutexLock run_lock(&run->mutex);
  for (ncclComm* comm : comms) {
    comm->callers.Add();
    std::shared_ptr<AsyncRun> previous;
    {
      rewire::MutexLock lock(&comm->mutex);
      previous = std::exchange(comm->run, run);
    }
    if (previous != nullptr) previous->Join();
    comm->async_result.store(ncclInProgress);
  }
  for (Job& job : batch.jobs) job.inside.reset();
  run->thread = std::thread([batch = std::move(batch), comms]() mutable {
    ::pthread_setname_np(::pthread_self(), "simnccl-async");
    if (!batch.work.empty()) PutOffLaunch(comms);
    const ncclResult_t result = RunBatch(&batch, nullptr);
    for (ncclComm* comm : comms) {
      ncclResult_t expected = ncclInProgress;
      comm->async_result.compare_exchange_strong(expected, result);
      comm->callers.Remove();
    }
  });
  return ncclInProgress;
}

}  // namespace

bool InsideGroup() { return Current().depth > 0; }

ncclResult_t GroupStart() {
  ++Current().depth;
  return ncclSuccess;
}

ncclResult_t GroupEnd(ncclSimInfo_t* simulate) {
  ThreadGroup& group = Current();
  if (group.depth == 0) {
    return Fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  }
  if (simulate != nullptr && simulate->magic != NCCL_SIM_INFO_MAGIC) {
    group.batch.error =
        Fail(ncclInvalidArgument,
             "ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER");
  }
  if (--group.depth > 0) return ncclSuccess;
  Batch batch = std::exchange(group.batch, Batch{});
  if (batch.error != ncclSuccess) return batch.error;
  if (batch.work.empty() && batch.jobs.empty()) return ncclSuccess;
  if (!batch.blocking.value_or(true)) {
    // As in NCCL, the simulation of a non-blocking group really launches.
    return StartAsync(std::move(batch));
  }
  const std::set<ncclComm*> comms = Involved(batch);
  for (ncclComm* comm : comms) comm->callers.Add();
  for (Job& job : batch.jobs) job.inside.reset();
  const ncclResult_t result = RunBatch(&batch, simulate);
  std::vector<ncclComm*> failed;
  for (const Job& job : batch.jobs) {
    if (result == ncclSuccess || !job.frees_on_failure) continue;
    failed.push_back(job.comm);
    __atomic_store_n(job.out, nullptr, __ATOMIC_RELEASE);
  }
  for (ncclComm* comm : comms) comm->callers.Remove();
  for (ncclComm* comm : failed) Free(comm, true);
  return result;
}

ncclResult_t InGroup(const std::function<ncclResult_t()>& add) {
  SIMNCCL_TRY(GroupStart());
  const ncclResult_t added = add();
  ThreadGroup& group = Current();
  if (added != ncclSuccess && group.batch.error == ncclSuccess) group.batch.error = added;
  const ncclResult_t ended = GroupEnd(nullptr);
  return added != ncclSuccess ? added : ended;
}

ncclResult_t AddCollective(ncclComm* comm, const CollectiveTask& task) {
  Batch& batch = Current().batch;
  SIMNCCL_TRY(JoinBatch(&batch, comm->config.blocking));
  CommWork& work = WorkOf(&batch, comm);
  if (task.count > 0) work.collectives.push_back(task);
  return ncclSuccess;
}

ncclResult_t AddPeer(ncclComm* comm, const PeerTask& task) {
  Batch& batch = Current().batch;
  SIMNCCL_TRY(JoinBatch(&batch, comm->config.blocking));
  WorkOf(&batch, comm).peers.push_back(task);
  return ncclSuccess;
}

ncclResult_t AddJob(Job job, bool blocking) {
  Batch& batch = Current().batch;
  // Communicators are freed at the end of the group, whatever their mode.
  if (job.comm != nullptr) SIMNCCL_TRY(JoinBatch(&batch, blocking));
  batch.jobs.push_back(std::move(job));
  return ncclSuccess;
}

}  // namespace simnccl
