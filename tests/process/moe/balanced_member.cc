// A member of a job that balances experts and computes nothing, for the agent's metrics.
//
//   balanced_member GROUP STOP_FILE    runs some rounds, prints "balanced", and continues until
//                                      the file exists
#include <time.h>
#include <unistd.h>

#include <cstdio>

#include "bench/moe-exec/sim_device.h"
#include "rewire/rewire.h"
#include "rewire/rewire_moe.h"

namespace {

constexpr uint32_t kRounds = 6;
constexpr uint32_t kOwn = 2;
constexpr uint32_t kRow = 64;       // bytes
constexpr uint64_t kWeights = 256;  // bytes
constexpr uint32_t kRows[2][kOwn] = {{90, 30}, {10, 6}};

void Must(rewireResult_t result) {
  if (result == rewireSuccess) return;
  fprintf(stderr, "%s: %s%s\n", rewireResultString(result), rewireLastError(),
          rewireMoeLastError());
  _exit(1);
}

void* At(CUdeviceptr p) { return reinterpret_cast<void*>(static_cast<uintptr_t>(p)); }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  rewireContext_t context = nullptr;
  Must(rewireAttach(nullptr, &context));
  rewireWorld_t world{};
  world.size = sizeof world;
  Must(rewireWorld(context, &world));
  const rewire::bench::SimDevice device(REWIRE_SIMGPU, static_cast<int>(world.slot));
  const uint32_t* const tokens = kRows[world.slot];
  char* const memory = static_cast<char*>(At(device.Allocate(kOwn * kWeights)));
  void* const weights[kOwn] = {memory, memory + kWeights};
  rewireExpertsOptions_t options{};
  options.size = sizeof options;
  options.name = argv[1];
  options.rank = world.slot;
  options.ranks = world.slots;
  options.experts = kOwn;
  options.rows = 200;
  options.weight_bytes = kWeights;
  options.token_bytes = kRow;
  options.dynamic = kOwn;
  options.patience_us = 20'000'000;
  rewireExperts_t experts = nullptr;
  Must(rewireExpertsOpen(&options, &experts));
  rewireRound_t round{};
  round.size = sizeof round;
  round.stream = device.MakeStream();
  round.parts = 1;
  round.tokens = tokens;
  round.weights = weights;
  round.part_bytes = &kWeights;
  round.x = round.out = At(device.Allocate(size_t{tokens[0] + tokens[1]} * kRow));
  for (uint32_t r = 0; r < kRounds; ++r) {
    const rewireSegment_t* segments = nullptr;
    const rewireGradient_t* gradients = nullptr;
    uint32_t count = 0;
    Must(rewireExpertsBegin(experts, &round, nullptr, &segments, &count));
    do {
      Must(rewireExpertsNext(experts, &segments, &count));
    } while (count > 0);
    Must(rewireExpertsCollect(experts, &gradients, &count));
    device.Wait(static_cast<CUstream>(round.stream));
  }
  printf("balanced\n");
  fflush(stdout);
  while (access(argv[2], F_OK) != 0) {
    const timespec pause = {0, 5'000'000};
    nanosleep(&pause, nullptr);
  }
  Must(rewireExpertsEnd(experts));
  Must(rewireDetach(context));
  _exit(0);
}
