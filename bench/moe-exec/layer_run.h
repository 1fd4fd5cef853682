// One process's part of a run: a few expert-parallel layers, forward and backward, over some
// micro-batches of a synthetic trace, with or without balancing. The framework's part (dispatch and
// combine by all-to-all over NCCL, grouped GEMMs) is written here as in a framework. GEMMs are
// computed on the processor and take virtual time. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/moe-exec/crew.h"
#include "bench/moe-exec/expert.h"
#include "bench/moe/trace.h"
#include "reconfig/moe/exec/balancer.h"

namespace rewire::bench {

struct LayerRunOptions {
  std::string simgpu;  // the folder of the simulated libraries
  std::string name;    // name of the run, unique on the machine
  TraceShape trace;
  uint32_t divide = 64;  // divides the trace's counts to save processor time
  ExpertShape expert;
  uint32_t layers = 2;
  uint32_t micro_batches = 8;
  uint32_t step = 12;        // micro-batches between two changes of the weights
  bool tell_version = true;  // false: the balancer does not know when the weights change
  uint64_t seed = 1;
  bool balance = true;
  // false: rows are made at their experts' owners, and processes wait for each other only for
  // balanced rows. Virtual time is then meaningless.
  bool dispatch = true;
  // Called between any two steps of a round, with the step's number. Tests end a process here.
  std::function<void(uint64_t step)> at_step;
  // Changes the driver that the balancer calls. Tests make calls fail with this function.
  std::function<void(CudaDriver* driver)> change_driver;
  moe::BalancerOptions balancer;
  // Virtual time of planning in a forward round. Copies, and the segments of the first Next(),
  // begin no earlier after the start of the round.
  uint64_t plan_ns = 0;
  uint32_t gate_percent = 105;
  // Virtual time of a row's GEMM, and of one more expert's, forward; backward takes twice the time.
  uint64_t row_ns = 9920;
  uint64_t expert_ns = 5000;
};

// Results of one process. The results of all ranks are adjacent in the crew's common memory.
struct LayerRunResult {
  uint64_t nccl_trace;  // hash of the process's calls into NCCL
  uint64_t dispatched;  // hash of the bytes that NCCL delivered before the GEMMs
  uint64_t forward;     // hash of the bytes that came back to the tokens' sources
  uint64_t backward;
  uint64_t critical_ns;    // sum over rounds of the slowest process's virtual time
  uint64_t allocations;    // allocations after the set-up
  uint64_t peer_bytes;     // bytes that the driver copied between processes
  uint64_t formula_bytes;  // bytes that the moves must copy
  uint64_t given, given_whole, weights_there, received, late_rounds, copies_left;
  // Forward rounds in which a static expert has more tokens than a dynamic expert.
  uint64_t stale_dynamic;
  moe::Off off;
};

// The weights in a slot, as the program itself tracks them. A copy is needed only if the weights
// are not in the slot. All changes of the weights count alike.
struct SlotOfRun {
  uint32_t layer, expert;
  uint64_t version;  // 0: the slot is empty
  friend bool operator==(const SlotOfRun&, const SlotOfRun&) = default;
};

// Bytes at the beginning of the common memory that RunLayers() uses.
inline constexpr size_t kLayerRunHeaderBytes = 256;
// Returns the bytes of common memory that a run needs.
[[nodiscard]] size_t LayerRunBytes(const LayerRunOptions& options);
[[nodiscard]] LayerRunResult& ResultOf(const Crew& crew, uint32_t rank);
// Returns the final gradients of rank's experts, [layer][own expert][weight].
[[nodiscard]] float* GradientsOf(const Crew& crew, const LayerRunOptions& options, uint32_t rank);
// By [layer][own expert]: 1 if every move was of all its tokens, 2 if a move was of some tokens.
[[nodiscard]] uint8_t* SplitOf(const Crew& crew, const LayerRunOptions& options, uint32_t rank);

[[nodiscard]] SlotOfRun* SlotsOf(const Crew& crew, const LayerRunOptions& options, uint32_t rank);
// Returns, per micro-batch, a hash of its rows, set after Balancer::Check() has passed; 0 before.
[[nodiscard]] uint64_t* ChecksOf(const Crew& crew, const LayerRunOptions& options, uint32_t rank);

// The result of RunLayers() when balancing has failed.
inline constexpr int kBalancingFailed = 3;
// Call in a child process. Returns the exit status.
[[nodiscard]] int RunLayers(const Crew& crew, const LayerRunOptions& options, uint32_t rank);

}  // namespace rewire::bench
