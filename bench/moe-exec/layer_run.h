// One process's part in a run: a few expert-parallel layers, forward and backward, over some
// micro-batches of a synthetic trace, with or without balancing. The framework's part (dispatch and
// combine by all-to-all over NCCL, grouped GEMMs) is written here as a framework would; GEMMs are
// computed on the processor and take virtual time.
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
  std::string name;    // of the run, unlike any other's
  TraceShape trace;
  uint32_t divide = 64;  // the trace's counts, for the processor's sake
  ExpertShape expert;
  uint32_t layers = 2;
  uint32_t micro_batches = 8;
  uint32_t step = 12;        // micro-batches from one change of the weights to the next
  bool tell_version = true;  // false: the balancer does not know when they change
  uint64_t seed = 1;
  bool balance = true;
  // false: rows are made where their experts are, and processes do not wait for each other but for
  // what they balance; virtual time means nothing then.
  bool dispatch = true;
  // Called between any two steps of a round, with their number: for tests, which end a process
  // there.
  std::function<void(uint64_t step)> at_step;
  // Of the driver that the balancer calls: for tests, which let calls fail.
  std::function<void(CudaDriver* driver)> change_driver;
  moe::BalancerOptions balancer;
  // Virtual time that planning takes in a forward round. Copies begin no earlier than this after
  // the round begins, and neither does anything that the first Next() gives.
  uint64_t plan_ns = 0;
  uint32_t gate_percent = 105;
  // Virtual time of a row's GEMM, and of one more expert's, forward; backward takes twice that.
  uint64_t row_ns = 9920;
  uint64_t expert_ns = 5000;
};

// What one process found. In the crew's common memory, behind each other.
struct LayerRunResult {
  uint64_t nccl_trace;  // of its calls into NCCL
  uint64_t dispatched;  // of the bytes that NCCL brought before the GEMMs
  uint64_t forward;     // of the bytes that came back to where the tokens are from
  uint64_t backward;
  uint64_t critical_ns;    // sum over rounds of the slowest process's virtual time
  uint64_t allocations;    // after all was set up
  uint64_t peer_bytes;     // that the driver copied between processes
  uint64_t formula_bytes;  // that the moves must copy
  uint64_t given, given_whole, weights_there, received, late_rounds, copies_left;
  // Forward rounds in which an expert that may not be moved has more tokens than one that may.
  uint64_t stale_dynamic;
  moe::Off off;
};

// Whose weights lie in a slot, as the program itself knows it: what must be copied is what does not
// lie there. One change of the weights is as good as another.
struct SlotOfRun {
  uint32_t layer, expert;
  uint64_t version;  // 0: nothing
  friend bool operator==(const SlotOfRun&, const SlotOfRun&) = default;
};

// At the beginning of the common memory, for RunLayers().
inline constexpr size_t kLayerRunHeaderBytes = 256;
// Bytes of common memory that a run needs.
[[nodiscard]] size_t LayerRunBytes(const LayerRunOptions& options);
[[nodiscard]] LayerRunResult& ResultOf(const Crew& crew, uint32_t rank);
// The gradients that rank's experts have at the end, [layer][own expert][weight].
[[nodiscard]] float* GradientsOf(const Crew& crew, const LayerRunOptions& options, uint32_t rank);
// Of [layer][own expert]: 1 where every move was of all its tokens, 2 where one was of some.
[[nodiscard]] uint8_t* SplitOf(const Crew& crew, const LayerRunOptions& options, uint32_t rank);

[[nodiscard]] SlotOfRun* SlotsOf(const Crew& crew, const LayerRunOptions& options, uint32_t rank);
// Of each micro-batch: what its rows came to, once that has passed Balancer::Check(); 0 before.
[[nodiscard]] uint64_t* ChecksOf(const Crew& crew, const LayerRunOptions& options, uint32_t rank);

// What RunLayers() gives when balancing has failed.
inline constexpr int kBalancingFailed = 3;
// In a child. The exit status.
[[nodiscard]] int RunLayers(const Crew& crew, const LayerRunOptions& options, uint32_t rank);

}  // namespace rewire::bench
