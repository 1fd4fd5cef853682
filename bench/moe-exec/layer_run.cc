#include "bench/moe-exec/layer_run.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>

#include "bench/moe-exec/dispatcher.h"
#include "bench/moe-exec/planning_delay.h"
#include "bench/moe-exec/sim_device.h"
#include "reconfig/base/hash.h"

namespace rewire::bench {
namespace {

// The beginning of the crew's common memory.
struct Header {
  ncclUniqueId id;
};

static_assert(sizeof(Header) <= kLayerRunHeaderBytes);

class Run {
 public:
  Run(const Crew& crew, const LayerRunOptions& o, uint32_t rank)
      : crew_(crew),
        o_(o),
        rank_(rank),
        own_(o.trace.experts / o.trace.devices),
        device_(o.simgpu, static_cast<int>(rank)),
        stream_(device_.MakeStream()) {}
  // Waits for the kernels, because they use this object's memory. The balancer releases kernels
  // that wait for a lost process, so the wait ends.
  ~Run() { device_.Wait(stream_); }

  int Main();

 private:
  struct Layer {
    std::unique_ptr<Trace> trace;
    Routing routing;
    // The weights and gradients of own experts, and the inputs, kept from forward to backward.
    CUdeviceptr weights = 0, gradients = 0, x = 0;
    moe::Moved moved;
  };

  void SetUp();
  void Route(Layer* layer);
  void BringRows(uint32_t micro_batch, uint32_t layer, bool backward);
  void ReturnRows(uint64_t* digest);
  [[nodiscard]] moe::RoundInput Input(uint32_t number, bool backward);
  bool Round(uint32_t number, bool backward);
  bool Balanced(uint32_t number, bool backward, const moe::RoundInput& input, uint64_t start);
  void NoteDynamic(const moe::Moved& moved, const moe::RoundInput& input);
  void Compute(uint32_t number, const moe::Segment& segment, bool backward);
  void AddGradient(uint32_t number, uint32_t expert, CUdeviceptr gradient);
  void NoteMoves(uint32_t number, bool backward, const moe::Moved& moved);
  void NoteSlots(uint32_t number, const moe::Moved& moved);
  void ChangeWeights();
  [[nodiscard]] moe::Segment Whole(const moe::RoundInput& input, uint32_t expert) const;
  bool Fail(const absl::Status& status);
  void Step() {
    if (o_.at_step) o_.at_step(step_++);
  }

  const Crew& crew_;
  const LayerRunOptions& o_;
  const uint32_t rank_;
  const uint32_t own_;
  SimDevice device_;
  CudaDriver balancers_cuda_{};
  const CUstream stream_;
  std::vector<Layer> layers_;
  std::unique_ptr<moe::Balancer> balancer_;
  std::unique_ptr<Dispatcher> dispatcher_;
  const Routing* routing_ = nullptr;  // of the current layer
  CUdeviceptr errors_ = 0, out_ = 0, gradient_ = 0;
  uint64_t step_ = 0;
  uint64_t version_ = 1;  // version of all weights
  uint64_t check_ = 0;    // hash of the rows that the experts computed in this micro-batch
  int exit_ = 1;
  LayerRunResult result_{};
};

bool Run::Fail(const absl::Status& status) {
  if (status.ok()) return false;
  exit_ = kBalancingFailed;
  fprintf(stderr, "rank %u: %s\n", rank_, std::string(status.message()).c_str());
  return true;
}

void Run::SetUp() {
  const size_t most = size_t{o_.trace.devices} * o_.trace.tokens * o_.trace.top / o_.divide +
                      size_t{o_.trace.experts} * o_.trace.devices;
  const size_t bytes = most * o_.expert.row_bytes();
  errors_ = device_.Allocate(bytes);
  out_ = device_.Allocate(bytes);
  dispatcher_ =
      std::make_unique<Dispatcher>(&device_, stream_, rank_, own_, o_.expert.hidden, most);
  gradient_ = device_.Allocate(o_.expert.weight_bytes());
  layers_.resize(o_.layers);
  for (uint32_t l = 0; l < o_.layers; ++l) {
    Layer& layer = layers_[l];
    layer.trace = std::make_unique<Trace>(o_.trace, o_.seed * 1000 + l);
    layer.x = device_.Allocate(bytes);
    layer.weights = device_.Allocate(own_ * o_.expert.weight_bytes());
    layer.gradients = device_.Allocate(own_ * o_.expert.weight_bytes());
    const size_t weights = own_ * o_.expert.weights();
    device_.Launch(stream_, 0, [&layer, l, weights, first = rank_ * weights] {
      for (size_t i = 0; i < weights; ++i) {
        Floats(layer.weights)[i] = ValueOf(l, 0, first + i) / 8;
        Floats(layer.gradients)[i] = 0;
      }
    });
  }
  device_.Wait(stream_);
}

// Divides the trace's counts by `divide`; the remainder is carried to the next count.
void Run::Route(Layer* layer) {
  layer->trace->Next();
  const std::vector<uint32_t>& counts = layer->trace->by_source();
  layer->routing.experts = o_.trace.experts;
  layer->routing.counts.resize(counts.size());
  uint32_t left = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    layer->routing.counts[i] = (counts[i] + left) / o_.divide;
    left = (counts[i] + left) % o_.divide;
  }
}

// Makes the layer's rows and, with dispatch, sends them to their experts' owners.
void Run::BringRows(uint32_t micro_batch, uint32_t number, bool backward) {
  routing_ = &layers_[number].routing;
  dispatcher_->Use(routing_);
  const uint64_t of = (uint64_t{micro_batch} * o_.layers + number) * 2 + (backward ? 1 : 0) + 1;
  const CUdeviceptr to = backward ? errors_ : layers_[number].x;
  if (o_.dispatch) {
    dispatcher_->Dispatch(of, to, &result_.dispatched);
  } else {
    dispatcher_->MakeHere(of, to);
  }
}

void Run::ReturnRows(uint64_t* digest) {
  dispatcher_->Digest(out_, &check_);
  if (o_.dispatch) dispatcher_->Combine(out_, digest);
  device_.Wait(stream_);
}

moe::RoundInput Run::Input(uint32_t number, bool backward) {
  const Layer& layer = layers_[number];
  moe::RoundInput input;
  input.stream = stream_;
  input.layer = number;
  input.version = o_.tell_version ? version_ : 0;
  const size_t half = o_.expert.weight_bytes() / 2;
  for (uint32_t e = 0; e < own_; ++e) {
    input.tokens.push_back(routing_->tokens(rank_ * own_ + e));
    const CUdeviceptr weights = layer.weights + e * o_.expert.weight_bytes();
    input.weights.push_back({{weights, half}, {weights + half, half}});
  }
  input.x = layer.x;
  input.errors = backward ? errors_ : 0;
  input.out = out_;
  return input;
}

void Run::AddGradient(uint32_t number, uint32_t expert, CUdeviceptr gradient) {
  const CUdeviceptr sum = layers_[number].gradients + expert * o_.expert.weight_bytes();
  device_.Launch(stream_, 0, [sum, gradient, count = o_.expert.weights()] {
    for (size_t i = 0; i < count; ++i) Floats(sum)[i] += Floats(gradient)[i];
  });
}

void Run::Compute(uint32_t number, const moe::Segment& s, bool backward) {
  const bool own = s.weights == 0;
  const CUdeviceptr weights =
      own ? layers_[number].weights + (s.expert - rank_ * own_) * o_.expert.weight_bytes()
          : s.weights;
  const uint64_t cost = (s.rows * o_.row_ns + o_.expert_ns) * (backward ? 2 : 1);
  if (!backward) {
    device_.Launch(stream_, cost, [this, s, weights] {
      ExpertForward(o_.expert, Floats(weights), Floats(s.x), Floats(s.out), s.rows);
    });
    return;
  }
  const CUdeviceptr gradient = own ? gradient_ : s.grad;
  device_.Launch(stream_, cost, [this, s, weights, gradient] {
    ExpertBackward(o_.expert, Floats(weights), Floats(s.x), Floats(s.errors), Floats(s.out),
                   Floats(gradient), s.rows);
  });
  if (own) AddGradient(number, s.expert - rank_ * own_, gradient);
}

// Returns all rows of an own expert, for a round without balancing.
moe::Segment Run::Whole(const moe::RoundInput& input, uint32_t expert) const {
  uint64_t before = 0;
  for (uint32_t e = 0; e < expert; ++e) before += input.tokens[e];
  const uint64_t offset = before * o_.expert.row_bytes();
  moe::Segment s;
  s.expert = rank_ * own_ + expert;
  s.rows = input.tokens[expert];
  s.x = input.x + offset;
  s.errors = input.errors + offset;
  s.out = input.out + offset;
  return s;
}

// Adds a round's moves, and the bytes that the moves must copy, to the result.
void Run::NoteMoves(uint32_t number, bool backward, const moe::Moved& moved) {
  const uint64_t weights = o_.expert.weight_bytes();
  for (const moe::PlacedMove& s : moved.given) {
    const uint64_t rows = s.move.tokens * o_.expert.row_bytes();
    const bool there = o_.tell_version && SlotsOf(crew_, o_, s.move.to)[s.slot] ==
                                              SlotOfRun{number, s.move.expert, version_};
    result_.formula_bytes += (there ? 0 : weights) + rows * (backward ? 2 : 1);
    const uint32_t expert = s.move.expert - rank_ * own_;
    const bool whole = s.move.tokens == routing_->tokens(s.move.expert);
    uint8_t& split = SplitOf(crew_, o_, rank_)[number * own_ + expert];
    split = std::max<uint8_t>(split, whole ? 1 : 2);
    ++result_.given;
    result_.weights_there += there ? 1 : 0;
    result_.given_whole += whole ? 1 : 0;
  }
  for (const moe::PlacedMove& s : moved.received) {
    const uint64_t rows = s.move.tokens * o_.expert.row_bytes();
    result_.formula_bytes += rows + (backward ? weights : 0);
    ++result_.received;
  }
}

// Counts the round if a static expert has more tokens than a dynamic expert.
void Run::NoteDynamic(const moe::Moved& moved, const moe::RoundInput& input) {
  uint32_t most_static = 0, least_dynamic = UINT32_MAX;
  for (uint32_t e = 0; e < own_; ++e) {
    if (moved.dynamic[e] == 0) most_static = std::max(most_static, input.tokens[e]);
    if (moved.dynamic[e] != 0) least_dynamic = std::min(least_dynamic, input.tokens[e]);
  }
  result_.stale_dynamic += most_static > least_dynamic ? 1 : 0;
}

// Records which weights are now in this process's slots. Call after all processes have called
// NoteMoves(), which reads the slots.
void Run::NoteSlots(uint32_t number, const moe::Moved& moved) {
  for (const moe::PlacedMove& s : moved.received) {
    SlotsOf(crew_, o_, rank_)[s.slot] = {number, s.move.expert, version_};
  }
}

// Changes all weights, as an optimizer's step does.
void Run::ChangeWeights() {
  ++version_;
  for (const Layer& layer : layers_) {
    const size_t weights = own_ * o_.expert.weights();
    device_.Launch(stream_, 0, [&layer, weights, first = rank_ * weights, version = version_] {
      for (size_t i = 0; i < weights; ++i) {
        Floats(layer.weights)[i] += ValueOf(version, 1, first + i) / 64;
      }
    });
  }
}

bool Run::Balanced(uint32_t number, bool backward, const moe::RoundInput& input, uint64_t start) {
  Layer& layer = layers_[number];
  SetPlanningTime(backward ? 0 : o_.plan_ns);
  if (Fail(backward ? balancer_->BeginBackward(input, layer.moved)
                    : balancer_->BeginForward(input))) {
    return false;
  }
  Step();
  for (const moe::Segment& s : balancer_->Statics()) Compute(number, s, backward);
  Step();
  bool planned = backward || o_.plan_ns == 0;
  for (bool more = true; more;) {
    const absl::StatusOr<std::vector<moe::Segment>> segments = balancer_->Next();
    if (Fail(segments.status())) return false;
    // In virtual time, the rows after the static rows begin only when planning has ended.
    if (!planned) (void)device_.Clock(stream_, start + o_.plan_ns);
    planned = true;
    Step();
    for (const moe::Segment& s : *segments) Compute(number, s, backward);
    more = !segments->empty();
  }
  const absl::StatusOr<std::vector<moe::Gradient>> gradients = balancer_->Collect();
  if (Fail(gradients.status())) return false;
  Step();
  for (const moe::Gradient& g : *gradients) AddGradient(number, g.expert, g.data);
  NoteMoves(number, backward, balancer_->moved());
  if (!backward) NoteDynamic(balancer_->moved(), input);
  layer.moved = balancer_->moved();
  return true;
}

bool Run::Round(uint32_t number, bool backward) {
  uint64_t start = 0;
  if (o_.dispatch) {
    if (!crew_.Largest(rank_, device_.Clock(stream_, 0), &start)) return false;
    start = device_.Clock(stream_, start);
  }
  const moe::RoundInput input = Input(number, backward);
  if (balancer_ != nullptr) {
    if (!Balanced(number, backward, input, start)) return false;
  } else {
    for (uint32_t e = 0; e < own_; ++e) {
      if (input.tokens[e] > 0) Compute(number, Whole(input, e), backward);
    }
  }
  if (!o_.dispatch) return true;
  uint64_t took = 0;
  if (!crew_.Largest(rank_, device_.Clock(stream_, 0) - start, &took)) return false;
  result_.critical_ns += took;
  if (balancer_ != nullptr) NoteSlots(number, balancer_->moved());
  return true;
}

int Run::Main() {
  if (o_.dispatch) {
    auto* const header = reinterpret_cast<Header*>(crew_.memory());
    if (rank_ == 0) header->id = device_.MakeId();
    if (!crew_.Meet(rank_)) return 1;
    device_.Join(header->id, static_cast<int>(crew_.ranks()), static_cast<int>(rank_));
  }
  SetUp();
  if (o_.balance) {
    moe::Shape shape;
    shape.experts = own_;
    shape.weight_bytes = shape.grad_bytes = o_.expert.weight_bytes();
    shape.token_bytes = o_.expert.row_bytes();
    shape.rows = o_.trace.tokens * o_.trace.top / o_.divide;
    shape.dynamic = o_.trace.dynamic;
    shape.gate_percent = o_.gate_percent;
    balancers_cuda_ = device_.cuda();
    if (o_.plan_ns > 0) DelayCopies(&device_, &balancers_cuda_);
    if (o_.change_driver) o_.change_driver(&balancers_cuda_);
    absl::StatusOr<std::unique_ptr<moe::Balancer>> opened =
        moe::Balancer::Open(balancers_cuda_, {o_.name, rank_, crew_.ranks()}, shape, o_.balancer);
    if (Fail(opened.status())) return exit_;
    balancer_ = *std::move(opened);
  }
  cuSimCounts before{};
  for (uint32_t m = 0; m <= o_.micro_batches; ++m) {
    // The first micro-batch is not measured: NCCL connects, and the balancer has not measured
    // the speeds yet.
    if (m == 1) {
      before = device_.Counts();
      result_ = LayerRunResult{};
      if (o_.dispatch && !crew_.Meet(rank_)) return 1;
    }
    if (m > 0 && (m - 1) % o_.step == 0) ChangeWeights();
    check_ = 0;
    for (uint32_t l = 0; l < o_.layers; ++l) {
      Route(&layers_[l]);
      BringRows(m, l, false);
      if (!Round(l, false)) return exit_;
      ReturnRows(&result_.forward);
    }
    for (uint32_t l = o_.layers; l-- > 0;) {
      BringRows(m, l, true);
      if (!Round(l, true)) return exit_;
      ReturnRows(&result_.backward);
    }
    if (balancer_ != nullptr && Fail(balancer_->Check())) return exit_;
    ChecksOf(crew_, o_, rank_)[m] = check_;
  }
  if (o_.dispatch && !crew_.Meet(rank_)) return 1;
  const cuSimCounts after = device_.Counts();
  result_.nccl_trace = device_.nccl_trace();
  result_.allocations = after.allocations - before.allocations;
  result_.peer_bytes = after.peer_bytes - before.peer_bytes;
  if (balancer_ != nullptr) {
    result_.late_rounds = balancer_->counts().late_rounds;
    result_.copies_left = balancer_->counts().copies;
    result_.off = balancer_->counts().off;
    balancer_.reset();
  }
  float* gradients = GradientsOf(crew_, o_, rank_);
  for (const Layer& layer : layers_) {
    std::memcpy(gradients, Floats(layer.gradients), own_ * o_.expert.weight_bytes());
    gradients += own_ * o_.expert.weights();
  }
  ResultOf(crew_, rank_) = result_;
  if (o_.dispatch) device_.Leave();
  return 0;
}

}  // namespace

int RunLayers(const Crew& crew, const LayerRunOptions& options, uint32_t rank) {
  return Run(crew, options, rank).Main();
}

}  // namespace rewire::bench
