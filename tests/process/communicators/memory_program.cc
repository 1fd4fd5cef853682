// One rank of a program that uses nearly all memory of one device: memory_program FOLDER MODE. At
// the commands 1, 3, ... the last rank fills its device, and at the others frees it again. All
// ranks then have the free memory of before, so a rebuild that was refused meanwhile has left
// nothing allocated. The files in FOLDER are those of command_loop.h; the mode is not used.
#include <algorithm>
#include <chrono>

#include "tests/process/communicators/command_loop.h"

namespace rewire {
namespace {

constexpr size_t kLeft = 1 << 20;  // NCCL needs more for another generation

size_t Free() {
  size_t free = 0;
  size_t total = 0;
  MUST(Cuda("cuMemGetInfo_v2", &free, &total));
  return free;
}

// A build that was begun before another rank refused is given up in the background.
void AwaitFree(size_t bytes) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (Free() < bytes) {
    if (std::chrono::steady_clock::now() > until) {
      Die("free memory: " + std::to_string(Free()) + " bytes, and " + std::to_string(bytes) +
          " before a rebuild that was refused");
    }
    usleep(2000);
  }
}

void Run() {
  const Gpu gpu(rank);
  ncclComm_t world = Init("world");
  ncclComm_t other = Init("other");
  ncclComm_t split = nullptr;
  MUST(ncclCommSplit(world, rank == 0 ? NCCL_SPLIT_NOCOLOR : 0, rank, &split, nullptr));
  uint64_t filler = 0;
  size_t before = 0;
  Loop(gpu, world, [&](int command) {
    Expect(Sum(gpu, other, 1), static_cast<float>(ranks), "the other one");
    if (split != nullptr) Expect(Sum(gpu, split, 1), static_cast<float>(ranks - 1), "the split");
    if (command == 0) return;
    const bool fills = command % 2 == 1;
    if (!fills && rank == ranks - 1) MUST(Cuda("cuMemFree_v2", filler));
    // Before a fill, the generation that a rebuild has replaced may still have its memory.
    AwaitFree(before - (fills ? std::min(before, kLeft) : 0));
    before = Free();
    if (fills && rank == ranks - 1) MUST(Cuda("cuMemAlloc_v2", &filler, before - kLeft));
  });
  if (split != nullptr) MUST(ncclCommDestroy(split));
  MUST(ncclCommDestroy(other));
  MUST(ncclCommDestroy(world));
}

}  // namespace
}  // namespace rewire

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  rewire::TakePlace(argv[1]);
  rewire::Run();
  printf("rank %d done\n", rewire::rank);
  return 0;
}
