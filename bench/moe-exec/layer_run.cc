#include "bench/moe-exec/layer_run.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>

#include "bench/moe-exec/sim_device.h"
#include "reconfig/base/hash.h"

namespace rewire::bench {
namespace {

struct Header {
  ncclUniqueId id;
};

constexpr size_t kHeaderBytes = 256;
static_assert(sizeof(Header) <= kHeaderBytes);

uint32_t OwnExperts(const LayerRunOptions& o) { return o.trace.experts / o.trace.devices; }
size_t Gradients(const LayerRunOptions& o) {
  return size_t{o.layers} * OwnExperts(o) * o.expert.weights();
}
size_t RankBytes(const LayerRunOptions& o) {
  return Gradients(o) * sizeof(float) + size_t{o.layers} * OwnExperts(o);
}

// In [-1, 1), from what it is of.
float Value(uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t hash = MixWord(MixWord(MixWord(0x5eed, a), b), c);
  return static_cast<float>(static_cast<int64_t>(hash)) * 0x1p-63F;
}

float* Floats(CUdeviceptr p) { return reinterpret_cast<float*>(static_cast<uintptr_t>(p)); }

// How one layer's tokens of one micro-batch go between the processes.
struct Routing {
  std::vector<uint32_t> counts;  // [source][expert]

  [[nodiscard]] uint32_t at(uint32_t source, uint32_t expert, uint32_t experts) const {
    return counts[size_t{source} * experts + expert];
  }
};

class Run {
 public:
  Run(const Crew& crew, const LayerRunOptions& o, uint32_t rank)
      : crew_(crew),
        o_(o),
        rank_(rank),
        own_(OwnExperts(o)),
        device_(o.simgpu, static_cast<int>(rank)),
        stream_(device_.MakeStream()) {}

  int Main();

 private:
  struct Layer {
    std::unique_ptr<Trace> trace;
    Routing routing;
    CUdeviceptr weights = 0, gradients = 0,
                x = 0;  // of the own experts; x from forward to backward
    moe::Moved moved;
  };

  void SetUp();
  void Route(Layer* layer);
  [[nodiscard]] uint64_t SentRows() const;  // that go from it
  void Fill(uint32_t micro_batch, uint32_t layer, bool backward);
  void Dispatch(CUdeviceptr to, uint64_t* digest);
  void Return(CUdeviceptr from, uint64_t* digest);
  [[nodiscard]] moe::RoundInput Input(uint32_t number, bool backward);
  bool Round(uint32_t number, bool backward);
  bool Balanced(uint32_t number, bool backward, const moe::RoundInput& input);
  void Compute(uint32_t number, const moe::Segment& segment, bool backward);
  void AddGradient(uint32_t number, uint32_t expert, CUdeviceptr gradient);
  void NoteMoves(uint32_t number, bool backward, const moe::Moved& moved);
  [[nodiscard]] moe::Segment Whole(const moe::RoundInput& input, uint32_t expert) const;
  bool Fail(const absl::Status& status);

  const Crew& crew_;
  const LayerRunOptions& o_;
  const uint32_t rank_;
  const uint32_t own_;
  SimDevice device_;
  const CUstream stream_;
  std::vector<Layer> layers_;
  std::unique_ptr<moe::Balancer> balancer_;
  const Routing* routing_ = nullptr;  // of the layer in hand
  CUdeviceptr sent_ = 0, received_ = 0, errors_ = 0, out_ = 0, gradient_ = 0;
  LayerRunResult result_{};
};

bool Run::Fail(const absl::Status& status) {
  if (status.ok()) return false;
  fprintf(stderr, "rank %u: %s\n", rank_, std::string(status.message()).c_str());
  return true;
}

void Run::SetUp() {
  const size_t most = size_t{o_.trace.devices} * o_.trace.tokens * o_.trace.top / o_.divide +
                      o_.trace.experts * o_.trace.devices;
  const size_t bytes = most * o_.expert.row_bytes();
  for (CUdeviceptr* buffer : {&sent_, &received_, &errors_, &out_}) {
    *buffer = device_.Allocate(bytes);
  }
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
        Floats(layer.weights)[i] = Value(l, 0, first + i) / 8;
        Floats(layer.gradients)[i] = 0;
      }
    });
  }
  device_.Wait(stream_);
}

// The trace's counts over `divide`, what is left over carried to the next.
void Run::Route(Layer* layer) {
  layer->trace->Next();
  const std::vector<uint32_t>& counts = layer->trace->by_source();
  layer->routing.counts.resize(counts.size());
  uint32_t left = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    layer->routing.counts[i] = (counts[i] + left) / o_.divide;
    left = (counts[i] + left) % o_.divide;
  }
  routing_ = &layer->routing;
}

uint64_t Run::SentRows() const {
  const auto first = routing_->counts.begin() + static_cast<ptrdiff_t>(rank_ * o_.trace.experts);
  return std::accumulate(first, first + o_.trace.experts, uint64_t{0});
}

// The rows that this process sends, by expert.
void Run::Fill(uint32_t micro_batch, uint32_t layer, bool backward) {
  const uint64_t of = (uint64_t{micro_batch} * o_.layers + layer) * 2 + (backward ? 1 : 0) + 1;
  const size_t values = SentRows() * o_.expert.hidden;
  device_.Launch(stream_, 0, [this, of, values] {
    for (size_t i = 0; i < values; ++i) Floats(sent_)[i] = Value(of, rank_ + 1, i);
  });
}

// What the framework does before the experts: rows to where their experts are, then by expert.
void Run::Dispatch(CUdeviceptr to, uint64_t* digest) {
  const uint32_t devices = o_.trace.devices;
  const size_t hidden = o_.expert.hidden;
  std::vector<size_t> sends(devices), receives(devices);
  for (uint32_t d = 0; d < devices; ++d) {
    for (uint32_t e = 0; e < own_; ++e) {
      sends[d] += routing_->at(rank_, d * own_ + e, o_.trace.experts) * hidden;
      receives[d] += routing_->at(d, rank_ * own_ + e, o_.trace.experts) * hidden;
    }
  }
  device_.AllToAll(stream_, sent_, sends, received_, receives);
  device_.Launch(stream_, 0, [this, to, digest, receives, hidden] {
    float* target = Floats(to);
    std::vector<const float*> from;
    const float* next = Floats(received_);
    for (const size_t floats : receives) {
      from.push_back(next);
      next += floats;
    }
    for (uint32_t e = 0; e < own_; ++e) {
      for (uint32_t s = 0; s < from.size(); ++s) {
        const size_t floats = routing_->at(s, rank_ * own_ + e, o_.trace.experts) * hidden;
        std::memcpy(target, from[s], floats * sizeof(float));
        target += floats;
        from[s] += floats;
      }
    }
    *digest = MixWord(*digest, ContentHash(Floats(to), (target - Floats(to)) * sizeof(float), 0));
  });
}

// And after them: back to where the rows are from.
void Run::Return(CUdeviceptr from, uint64_t* digest) {
  const uint32_t devices = o_.trace.devices;
  const size_t hidden = o_.expert.hidden;
  std::vector<size_t> sends(devices), receives(devices);
  for (uint32_t d = 0; d < devices; ++d) {
    for (uint32_t e = 0; e < own_; ++e) {
      sends[d] += routing_->at(d, rank_ * own_ + e, o_.trace.experts) * hidden;
      receives[d] += routing_->at(rank_, d * own_ + e, o_.trace.experts) * hidden;
    }
  }
  device_.Launch(stream_, 0, [this, from, sends, hidden] {
    const float* source = Floats(from);
    std::vector<float*> to;
    float* next = Floats(received_);
    for (const size_t floats : sends) {
      to.push_back(next);
      next += floats;
    }
    for (uint32_t e = 0; e < own_; ++e) {
      for (uint32_t s = 0; s < to.size(); ++s) {
        const size_t floats = routing_->at(s, rank_ * own_ + e, o_.trace.experts) * hidden;
        std::memcpy(to[s], source, floats * sizeof(float));
        source += floats;
        to[s] += floats;
      }
    }
  });
  device_.AllToAll(stream_, received_, sends, sent_, receives);
  const size_t bytes = SentRows() * o_.expert.row_bytes();
  device_.Launch(stream_, 0, [this, digest, bytes] {
    *digest = MixWord(*digest, ContentHash(Floats(sent_), bytes, 0));
  });
}

moe::RoundInput Run::Input(uint32_t number, bool backward) {
  const Layer& layer = layers_[number];
  moe::RoundInput input;
  input.stream = stream_;
  input.layer = number;
  const size_t half = o_.expert.weight_bytes() / 2;
  for (uint32_t e = 0; e < own_; ++e) {
    uint32_t tokens = 0;
    for (uint32_t s = 0; s < o_.trace.devices; ++s) {
      tokens += routing_->at(s, rank_ * own_ + e, o_.trace.experts);
    }
    input.tokens.push_back(tokens);
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

void Run::NoteMoves(uint32_t number, bool backward, const moe::Moved& moved) {
  const uint64_t weights = o_.expert.weight_bytes();
  for (const moe::Stowed& s : moved.given) {
    const uint64_t rows = s.move.tokens * o_.expert.row_bytes();
    result_.formula_bytes += weights + rows * (backward ? 2 : 1);
    const uint32_t expert = s.move.expert - rank_ * own_;
    uint32_t tokens = 0;
    for (uint32_t d = 0; d < o_.trace.devices; ++d) {
      tokens += routing_->at(d, s.move.expert, o_.trace.experts);
    }
    const bool whole = s.move.tokens == tokens;
    uint8_t& split = SplitOf(crew_, o_, rank_)[number * own_ + expert];
    split = std::max<uint8_t>(split, whole ? 1 : 2);
    ++result_.given;
    result_.given_whole += whole ? 1 : 0;
  }
  for (const moe::Stowed& s : moved.received) {
    const uint64_t rows = s.move.tokens * o_.expert.row_bytes();
    result_.formula_bytes += rows + (backward ? weights : 0);
    ++result_.received;
  }
}

bool Run::Balanced(uint32_t number, bool backward, const moe::RoundInput& input) {
  Layer& layer = layers_[number];
  if (Fail(backward ? balancer_->BeginBackward(input, layer.moved)
                    : balancer_->BeginForward(input))) {
    return false;
  }
  for (const moe::Segment& s : balancer_->Statics()) Compute(number, s, backward);
  const absl::StatusOr<moe::Work> work = balancer_->Close();
  if (Fail(work.status())) return false;
  for (const moe::Segment& s : work->received) Compute(number, s, backward);
  if (Fail(balancer_->GiveBack())) return false;
  for (const moe::Segment& s : work->own) Compute(number, s, backward);
  const absl::StatusOr<std::vector<moe::Gradient>> gradients = balancer_->Collect();
  if (Fail(gradients.status())) return false;
  for (const moe::Gradient& g : *gradients) AddGradient(number, g.expert, g.data);
  NoteMoves(number, backward, balancer_->moved());
  layer.moved = balancer_->moved();
  return true;
}

bool Run::Round(uint32_t number, bool backward) {
  uint64_t start = 0;
  if (!crew_.Largest(rank_, device_.Clock(stream_, 0), &start)) return false;
  start = device_.Clock(stream_, start);
  const moe::RoundInput input = Input(number, backward);
  if (balancer_ != nullptr) {
    if (!Balanced(number, backward, input)) return false;
  } else {
    for (uint32_t e = 0; e < own_; ++e) {
      if (input.tokens[e] > 0) Compute(number, Whole(input, e), backward);
    }
  }
  uint64_t took = 0;
  if (!crew_.Largest(rank_, device_.Clock(stream_, 0) - start, &took)) return false;
  result_.critical_ns += took;
  return true;
}

int Run::Main() {
  auto* const header = reinterpret_cast<Header*>(crew_.memory());
  if (rank_ == 0) header->id = device_.MakeId();
  if (!crew_.Meet(rank_)) return 1;
  device_.Join(header->id, static_cast<int>(crew_.ranks()), static_cast<int>(rank_));
  SetUp();
  if (o_.balance) {
    moe::Shape shape;
    shape.experts = own_;
    shape.weight_bytes = shape.grad_bytes = o_.expert.weight_bytes();
    shape.token_bytes = o_.expert.row_bytes();
    shape.rows = o_.trace.tokens * o_.trace.top / o_.divide;
    shape.dynamic = o_.trace.dynamic;
    absl::StatusOr<std::unique_ptr<moe::Balancer>> opened =
        moe::Balancer::Open(device_.cuda(), {o_.name, rank_, crew_.ranks()}, shape, o_.balancer);
    if (Fail(opened.status())) return 1;
    balancer_ = *std::move(opened);
  }
  if (!crew_.Meet(rank_)) return 1;
  cuSimCounts before{};
  for (uint32_t m = 0; m <= o_.micro_batches; ++m) {
    // The first is NCCL's to connect in, and the history's.
    if (m == 1) {
      before = device_.Counts();
      result_ = LayerRunResult{};
      if (!crew_.Meet(rank_)) return 1;
    }
    for (uint32_t l = 0; l < o_.layers; ++l) {
      Route(&layers_[l]);
      Fill(m, l, false);
      Dispatch(layers_[l].x, &result_.dispatched);
      if (!Round(l, false)) return 1;
      Return(out_, &result_.forward);
      device_.Wait(stream_);
    }
    for (uint32_t l = o_.layers; l-- > 0;) {
      routing_ = &layers_[l].routing;
      Fill(m, l, true);
      Dispatch(errors_, &result_.dispatched);
      if (!Round(l, true)) return 1;
      Return(out_, &result_.backward);
      device_.Wait(stream_);
    }
  }
  if (!crew_.Meet(rank_)) return 1;
  const cuSimCounts after = device_.Counts();
  result_.nccl_trace = device_.nccl_trace();
  result_.allocations = after.allocations - before.allocations;
  result_.peer_bytes = after.peer_bytes - before.peer_bytes;
  if (balancer_ != nullptr) {
    if (Fail(balancer_->Check())) return 1;
    result_.late_rounds = balancer_->counts().late_rounds;
    result_.copies_left = balancer_->counts().copies;
    balancer_.reset();
  }
  float* gradients = GradientsOf(crew_, o_, rank_);
  for (const Layer& layer : layers_) {
    std::memcpy(gradients, Floats(layer.gradients), own_ * o_.expert.weight_bytes());
    gradients += own_ * o_.expert.weights();
  }
  ResultOf(crew_, rank_) = result_;
  device_.Leave();
  return 0;
}

}  // namespace

size_t LayerRunBytes(const LayerRunOptions& o) {
  return kHeaderBytes + o.trace.devices * (sizeof(LayerRunResult) + RankBytes(o));
}

LayerRunResult& ResultOf(const Crew& crew, uint32_t rank) {
  return reinterpret_cast<LayerRunResult*>(crew.memory() + kHeaderBytes)[rank];
}

float* GradientsOf(const Crew& crew, const LayerRunOptions& o, uint32_t rank) {
  char* const first = crew.memory() + kHeaderBytes + crew.ranks() * sizeof(LayerRunResult);
  return reinterpret_cast<float*>(first + rank * RankBytes(o));
}

uint8_t* SplitOf(const Crew& crew, const LayerRunOptions& o, uint32_t rank) {
  return reinterpret_cast<uint8_t*>(GradientsOf(crew, o, rank) + Gradients(o));
}

int RunLayers(const Crew& crew, const LayerRunOptions& options, uint32_t rank) {
  return Run(crew, options, rank).Main();
}

}  // namespace rewire::bench
