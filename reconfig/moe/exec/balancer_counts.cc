#include "reconfig/moe/exec/balancer_counts.h"

#include "reconfig/base/mutex.h"

namespace rewire::moe {
namespace {

struct Process {
  Mutex mutex;
  ProcessCounts counts REWIRE_GUARDED_BY(mutex);
};

Process& ThisProcess() {
  static Process process;
  return process;
}

}  // namespace

ProcessCounts CountsOfProcess() {
  Process& process = ThisProcess();
  MutexLock lock(&process.mutex);
  return process.counts;
}

CountsPart::~CountsPart() {
  BalancerCounts gone = last_;
  gone.copies = 0;
  Set(gone);
}

void CountsPart::Set(const BalancerCounts& now) {
  Process& process = ThisProcess();
  MutexLock lock(&process.mutex);
  ProcessCounts& all = process.counts;
  all.rounds += now.rounds - last_.rounds;
  all.given += now.given - last_.given;
  all.copied_bytes += now.copied_bytes - last_.copied_bytes;
  all.late_rounds += now.late_rounds - last_.late_rounds;
  all.copies += uint64_t{now.copies} - last_.copies;
  if (now.off != last_.off) {
    all.off_late += now.off == Off::kLate ? 1 : 0;
    all.off_copies += now.off == Off::kCopies ? 1 : 0;
    all.off_broken += now.off == Off::kBroken ? 1 : 0;
  }
  last_ = now;
}

}  // namespace rewire::moe
