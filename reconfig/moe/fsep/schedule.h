// Schedules the transfers of fully sharded experts' weights and gradients (LAER-MoE's fine-grained
// scheduling). The transfers run on their own stream, beside the experts' GEMMs and never beside a
// token all-to-all. While a layer's experts compute, the weights of the next layers are restored,
// up to the prefetch depth. The gradients of the layer before are reduced in the same time, after
// this layer's tokens have been sent. With a depth of 0 nothing is prefetched: a layer's experts
// wait for their own weights, which move after the layer's tokens have been sent.
//
// A step is a list of visits, one per use of a layer's experts. The training thread makes these
// calls, on its own streams, and every rank makes them in the same order:
//
//   Begin(visits)
//   for each visit:  BeginTokens   its all-to-all to the experts   EndTokens
//                    BeginExperts  its GEMMs                       EndExperts
//                    BeginTokens   its all-to-all back             EndTokens
//   Finish()
//
// Each call only puts waits and work on streams. Tokens wait for weights that were sent before
// them, and weights for tokens, in the same order on every rank. Therefore the two communicators
// cannot block each other. A call out of turn fails without effect; after any other error the step
// cannot continue. Owned by the thread that created the object. The context of Create() must be
// current in every call and in the destructor, which waits for the weights and gradients in flight.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/moe/fsep/exchange.h"
#include "reconfig/moe/fsep/stream_trace.h"

namespace rewire::moe::fsep {

struct Visit {
  uint32_t layer = 0;
  bool gradients = false;  // a backward pass: the experts write gradients
};
// Returns visits of layers 0 to n - 1 forward, then in reverse order with gradients.
[[nodiscard]] std::vector<Visit> ForwardAndBackward(uint32_t layers);

// This rank's chunks of a layer, in Exchange's layout.
struct LayerShards {
  CUdeviceptr weights = 0;
  CUdeviceptr gradients = 0;
};

// The memory that a visit's experts use: all of the device's slots.
struct SlotMemory {
  CUdeviceptr weights = 0;
  CUdeviceptr gradients = 0;  // written by the experts; 0 in a visit without gradients
};

class Schedule {
 public:
  // Allocates `prefetch` + 1 sets of slots for weights and two for gradients. prefetch: visits
  // restored ahead, 0 to the number of layers. trace: may be null and must outlive the schedule.
  static absl::StatusOr<std::unique_ptr<Schedule>> Create(const CudaDriver& driver,
                                                          std::unique_ptr<Exchange> exchange,
                                                          std::vector<LayerShards> layers,
                                                          uint32_t prefetch, StreamTrace* trace);
  ~Schedule();
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  // Sets the layer's placement from the next step on; call between steps only. If the placement
  // changes, Place() waits until the last step's gradients have arrived. Returns kDeadlineExceeded
  // after `patience`, without effect.
  absl::Status Place(uint32_t layer, const Placement& placement, Duration patience);

  // Begins a step. The shards' weights are final when `stream` reaches this point. All visited
  // layers must have a placement.
  absl::Status Begin(std::vector<Visit> visits, CUstream stream);
  absl::Status BeginTokens(CUstream stream);
  absl::Status EndTokens(CUstream stream);
  // Later work on `stream` finds the tokens and the weights.
  absl::StatusOr<SlotMemory> BeginExperts(CUstream stream);
  // Call after the last use of the slots, also if the returning tokens wait for less work.
  absl::Status EndExperts(CUstream stream);
  // Later work on `stream` finds all gradients in the shards, and may change the weights.
  absl::Status Finish(CUstream stream);

 private:
  // The call that must come next.
  enum class Turn : uint8_t {
    kBegin,
    kBeginTokensOut,
    kEndTokensOut,
    kBeginExperts,
    kEndExperts,
    kBeginTokensBack,
    kEndTokensBack,
    kFinish
  };

  Schedule(const CudaDriver& driver, std::unique_ptr<Exchange> exchange,
           std::vector<LayerShards> layers, uint32_t prefetch, StreamTrace* trace)
      : driver_(driver),
        exchange_(std::move(exchange)),
        layers_(std::move(layers)),
        prefetch_(prefetch),
        trace_(trace) {}

  absl::Status Allocate();
  absl::Status Refuse(const char* call) const;
  absl::Status AwaitMoved(Duration patience);  // waits on the host
  absl::Status WaitForTokensAndExperts();
  absl::Status Restore(size_t visit);
  absl::Status ReduceLast();  // reduces the gradients of the visit before
  absl::Status MakeEvent(CUevent* event);
  absl::Status Record(CUevent event, CUstream stream);
  absl::Status Wait(CUstream stream, CUevent event);
  absl::Status Trace(Track track, const char* what, uint32_t layer, CUstream stream);
  absl::Status EndTrace(Track track, CUstream stream);

  const CudaDriver& driver_;
  std::unique_ptr<Exchange> exchange_;
  const std::vector<LayerShards> layers_;
  const uint32_t prefetch_;
  StreamTrace* const trace_;

  std::vector<DeviceMemory> weights_;    // a visit has set number visit % (prefetch + 1)
  std::vector<DeviceMemory> gradients_;  // the n-th visit with gradients has set n % 2
  CUstream stream_ = nullptr;            // the stream of weights and gradients
  // after the last token all-to-all, or at a step's start
  CUevent tokens_ = nullptr;
  CUevent experts_ = nullptr;   // recorded after the last visit's experts
  CUevent restored_ = nullptr;  // recorded after the last restore that a visit's tokens released
  CUevent moved_ = nullptr;     // recorded after the last work on stream_

  Turn turn_ = Turn::kBegin;
  std::vector<Visit> visits_;
  size_t visit_ = 0;         // the current visit
  uint32_t reductions_ = 0;  // since the creation of the object
  bool unreduced_ = false;   // the visit before left gradients
};

}  // namespace rewire::moe::fsep
