// The loop of a program whose rank 0 follows the files in its folder: use-K (the K-th command) and
// stop. For the programs of this folder; owned by the thread that makes the communicators.
#pragma once

#include <functional>
#include <string>

#include "tests/process/communicators/program_process.h"

namespace rewire {

inline ncclComm_t Init(const std::string& name) {
  const ncclUniqueId id = Share(name);
  ncclComm_t comm = nullptr;
  MUST(ncclCommInitRank(&comm, ranks, id, rank));
  return comm;
}

inline float Sum(const Gpu& gpu, ncclComm_t comm, float value) {
  gpu.Give(value);
  MUST(ncclAllReduce(gpu.send(), gpu.receive(), kElements, ncclFloat, ncclSum, comm, gpu.stream));
  return gpu.Take();
}

inline int SumOfRanks(int of) { return of * (of - 1) / 2; }

// Runs `each` until the command to stop, with the number of the command, or 0.
inline void Loop(const Gpu& gpu, ncclComm_t world, const std::function<void(int)>& each) {
  constexpr int kUse = 1;
  constexpr int kStop = 2;
  printf("rank %d ready\n", rank);
  fflush(stdout);
  for (int used = 0;;) {
    usleep(2000);  // computation time: the next generations' builds also need the CPUs
    int command = 0;
    if (rank == 0 && Exists("use-" + std::to_string(used + 1))) command = kUse;
    if (rank == 0 && Exists("stop")) command = kStop;
    command = static_cast<int>(Sum(gpu, world, static_cast<float>(command)));
    if (command == kStop) return;
    each(command == kUse ? used + 1 : 0);
    if (command != kUse) continue;
    ++used;
    printf("rank %d used it %d\n", rank, used);
    fflush(stdout);
  }
}

}  // namespace rewire
