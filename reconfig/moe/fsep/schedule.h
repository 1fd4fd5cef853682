// When the weights and gradients of fully sharded experts move (LAER-MoE's fine-grained
// scheduling): on a stream of their own, beside the experts' GEMMs and never beside a token
// all-to-all. While a layer's experts compute, the next layers' weights are restored, as many ahead
// as the prefetch depth says, and the gradients of the layer before are brought back, which waited
// for that until this layer's tokens had gone out. With a depth of 0 nothing is ahead: a layer's
// experts wait for their own weights, which move when its tokens have gone out.
//
// A step is a list of visits, one per use of a layer's experts. The training thread calls, on its
// own streams, and every rank in the same order:
//
//   Begin(visits)
//   for each visit:  BeginTokens   its all-to-all to the experts   EndTokens
//                    BeginExperts  its GEMMs                       EndExperts
//                    BeginTokens   its all-to-all back             EndTokens
//   Finish()
//
// Each call only puts waits and work on streams. Since tokens wait for the weights that were sent
// before them and weights for the tokens, in one order on every rank, the two communicators cannot
// block each other. A call out of turn is refused and changes nothing; after any other error the
// step cannot go on. An object belongs to one thread and one context, which is current in every
// call and at the end, which waits for the weights and gradients that are on their way.
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
  bool gradients = false;  // a backward pass: the experts leave gradients
};
// Layers 0 to n - 1, and back.
[[nodiscard]] std::vector<Visit> ForwardAndBackward(uint32_t layers);

// This rank's chunks of a layer, as Exchange has them.
struct LayerShards {
  CUdeviceptr weights = 0;
  CUdeviceptr gradients = 0;
};

// What a visit's experts use: all of the device's slots.
struct SlotMemory {
  CUdeviceptr weights = 0;
  CUdeviceptr gradients = 0;  // to be written; 0 in a visit without
};

class Schedule {
 public:
  // Allocates `prefetch` + 1 sets of slots for weights and two for gradients. prefetch: visits
  // whose weights are restored ahead, 0 to the number of layers. trace may be null, and outlives
  // the schedule.
  static absl::StatusOr<std::unique_ptr<Schedule>> Create(const CudaDriver& driver,
                                                          std::unique_ptr<Exchange> exchange,
                                                          std::vector<LayerShards> layers,
                                                          uint32_t prefetch, StreamTrace* trace);
  ~Schedule();
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  // From the next step on; between steps only. Where it is another placement than before, waits
  // until the last step's gradients have arrived; a kDeadlineExceeded after `patience`, and nothing
  // has changed.
  absl::Status Place(uint32_t layer, const Placement& placement, Duration patience);

  // The shards' weights are what they are to be when `stream` has come to this point. Layers that
  // are visited have a placement.
  absl::Status Begin(std::vector<Visit> visits, CUstream stream);
  absl::Status BeginTokens(CUstream stream);
  absl::Status EndTokens(CUstream stream);
  // What comes next on `stream` finds the tokens and the weights.
  absl::StatusOr<SlotMemory> BeginExperts(CUstream stream);
  // Behind the last use of the slots, which may be later than what the tokens back wait for.
  absl::Status EndExperts(CUstream stream);
  // What comes next on `stream` finds all gradients in the shards, and may change their weights.
  absl::Status Finish(CUstream stream);

 private:
  // Which call is due.
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
  absl::Status AwaitMoved(Duration patience);  // on the host
  absl::Status WaitForTokensAndExperts();
  absl::Status Restore(size_t visit);
  absl::Status ReduceLast();  // what the visit before left
  absl::Status MakeEvent(CUevent* event);
  absl::Status Record(CUevent event, CUstream stream);
  absl::Status Wait(CUstream stream, CUevent event);
  absl::Status Trace(Track track, const char* what, uint32_t layer, CUstream stream);
  absl::Status EndTrace(Track track, CUstream stream);

  const CudaDriver& driver_;
  const std::unique_ptr<Exchange> exchange_;
  const std::vector<LayerShards> layers_;
  const uint32_t prefetch_;
  StreamTrace* const trace_;

  std::vector<DeviceMemory> weights_;    // a visit has set number visit % (prefetch + 1)
  std::vector<DeviceMemory> gradients_;  // the n-th visit with gradients has set n % 2
  CUstream stream_ = nullptr;            // of weights and gradients
  CUevent tokens_ = nullptr;             // behind the last token all-to-all, or where a step began
  CUevent experts_ = nullptr;            // behind the last visit's experts
  CUevent restored_ = nullptr;           // behind the last restore that a visit's tokens let go
  CUevent moved_ = nullptr;              // behind what was last put on stream_

  Turn turn_ = Turn::kBegin;
  std::vector<Visit> visits_;
  size_t visit_ = 0;         // the one that is under way
  uint32_t reductions_ = 0;  // since the beginning of the object
  bool unreduced_ = false;   // the visit before left gradients
};

}  // namespace rewire::moe::fsep
