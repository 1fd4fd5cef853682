// Implements the C interface of expert balancing inside a node, without a context, and
// rewireMoeLastError(). See rewire/rewire_moe.h for threads.
#include <memory>
#include <string>
#include <vector>

#include "reconfig/api/arguments.h"
#include "reconfig/base/cancellation.h"
#include "reconfig/base/counters.h"
#include "reconfig/moe/exec/balancer.h"
#include "rewire/rewire_moe.h"

struct rewireExperts {
  std::unique_ptr<rewire::moe::Balancer> balancer;
  uint32_t own = 0;
  std::vector<rewireSegment_t> statics, next;
  std::vector<rewireGradient_t> gradients;
};

struct rewireMoved {
  rewire::moe::Moved moved;
};

using rewire::Arguments;
using rewire::Fail;
using rewire::moe::Balancer;
using rewire::moe::BalancerCounts;
using rewire::moe::BalancerOptions;
using rewire::moe::Gradient;
using rewire::moe::RoundInput;
using rewire::moe::Segment;

namespace {

void* Pointer(CUdeviceptr p) { return reinterpret_cast<void*>(static_cast<uintptr_t>(p)); }
CUdeviceptr Address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

rewireSegment_t ToC(const Segment& s) {
  return {
      s.expert,     s.first,           s.rows,         s.recompute ? 1U : 0U, Pointer(s.weights),
      Pointer(s.x), Pointer(s.errors), Pointer(s.out), Pointer(s.grad)};
}

// Takes the options that are not 0; `copies` has its default in the balancer.
BalancerOptions OptionsOf(const rewireExpertsOptions_t& o) {
  BalancerOptions options;
  options.copies = o.copies;
  if (o.late_rounds != 0) options.late_rounds = o.late_rounds;
  if (o.late_percent != 0) options.late_percent = o.late_percent;
  if (o.patience_us != 0) options.patience = rewire::microseconds(o.patience_us);
  if (o.meeting_ms != 0) options.meeting = rewire::milliseconds(o.meeting_ms);
  return options;
}

RoundInput InputOf(const rewireRound_t& round, uint32_t own) {
  RoundInput input;
  input.stream = static_cast<CUstream>(round.stream);
  input.layer = round.layer;
  input.version = round.version;
  input.tokens.assign(round.tokens, round.tokens + own);
  input.weights.resize(own);
  for (uint32_t e = 0; e < own; ++e) {
    for (uint32_t p = 0; p < round.parts; ++p) {
      input.weights[e].push_back(
          {Address(round.weights[size_t{e} * round.parts + p]), round.part_bytes[p]});
    }
  }
  input.x = Address(round.x);
  input.errors = Address(round.errors);
  input.out = Address(round.out);
  return input;
}

}  // namespace

extern "C" {

// librewire-moe.so and librewire.so each have their own last error.
const char* rewireMoeLastError(void) noexcept { return rewire::LastError().c_str(); }

rewireResult_t rewireExpertsOpen(const rewireExpertsOptions_t* o,
                                 rewireExperts_t* experts) noexcept {
  const rewire::PostponedCancellation postponed;
  if (const rewireResult_t wrong = Arguments("rewireExpertsOpen")
                                       .Sized("options", "rewireExpertsOptions_t", o)
                                       .NotNull("options->name", o == nullptr ? nullptr : o->name)
                                       .NotNull("experts", experts)
                                       .result();
      wrong != rewireSuccess) {
    return wrong;
  }
  std::string error;
  const rewire::CudaDriver* cuda = rewire::CudaDriver::Get(&error);
  if (cuda == nullptr) return Fail(absl::UnavailableError(error));
  rewire::moe::Shape shape;
  shape.experts = o->experts;
  shape.weight_bytes = o->weight_bytes;
  shape.grad_bytes = o->grad_bytes;
  shape.token_bytes = o->token_bytes;
  shape.rows = o->rows;
  if (o->slots != 0) shape.slots = o->slots;
  if (o->dynamic != 0) shape.dynamic = o->dynamic;
  if (o->gate_percent != 0) shape.gate_percent = o->gate_percent;
  if (o->least != 0) shape.least = o->least;
  absl::StatusOr<std::unique_ptr<Balancer>> balancer =
      Balancer::Open(*cuda, {o->name, o->rank, o->ranks}, shape, OptionsOf(*o));
  if (!balancer.ok()) return Fail(balancer.status());
  *experts = new rewireExperts{*std::move(balancer), o->experts, {}, {}, {}};
  rewire::ReportCounters(rewire::CopyCounters);
  return rewireSuccess;
}

rewireResult_t rewireExpertsBegin(rewireExperts_t experts, const rewireRound_t* round,
                                  rewireMoved_t moved, const rewireSegment_t** segments,
                                  uint32_t* count) noexcept {
  const rewire::PostponedCancellation postponed;
  Arguments arguments("rewireExpertsBegin");
  arguments.NotNull("experts", experts).Sized("round", "rewireRound_t", round);
  if (arguments.result() == rewireSuccess) {
    arguments.NotNull("round->tokens", round->tokens)
        .NotNull("round->weights", round->weights)
        .NotNull("round->part_bytes", round->part_bytes)
        .NotNull("segments", segments)
        .NotNull("count", count);
  }
  if (arguments.result() != rewireSuccess) return arguments.result();
  const RoundInput input = InputOf(*round, experts->own);
  const absl::Status begun = moved == nullptr
                                 ? experts->balancer->BeginForward(input)
                                 : experts->balancer->BeginBackward(input, moved->moved);
  if (!begun.ok()) return Fail(begun);
  experts->statics.clear();
  for (const Segment& s : experts->balancer->Statics()) experts->statics.push_back(ToC(s));
  *segments = experts->statics.data();
  *count = static_cast<uint32_t>(experts->statics.size());
  return rewireSuccess;
}

rewireResult_t rewireExpertsNext(rewireExperts_t experts, const rewireSegment_t** segments,
                                 uint32_t* count) noexcept {
  const rewire::PostponedCancellation postponed;
  if (const rewireResult_t wrong = Arguments("rewireExpertsNext")
                                       .NotNull("experts", experts)
                                       .NotNull("segments", segments)
                                       .NotNull("count", count)
                                       .result();
      wrong != rewireSuccess) {
    return wrong;
  }
  const absl::StatusOr<std::vector<Segment>> next = experts->balancer->Next();
  if (!next.ok()) return Fail(next.status());
  experts->next.clear();
  for (const Segment& s : *next) experts->next.push_back(ToC(s));
  *segments = experts->next.data();
  *count = static_cast<uint32_t>(experts->next.size());
  return rewireSuccess;
}

rewireResult_t rewireExpertsCollect(rewireExperts_t experts, const rewireGradient_t** gradients,
                                    uint32_t* count) noexcept {
  const rewire::PostponedCancellation postponed;
  if (const rewireResult_t wrong = Arguments("rewireExpertsCollect")
                                       .NotNull("experts", experts)
                                       .NotNull("gradients", gradients)
                                       .NotNull("count", count)
                                       .result();
      wrong != rewireSuccess) {
    return wrong;
  }
  const absl::StatusOr<std::vector<Gradient>> collected = experts->balancer->Collect();
  if (!collected.ok()) return Fail(collected.status());
  experts->gradients.clear();
  for (const Gradient& g : *collected) {
    experts->gradients.push_back({g.expert, g.helper, Pointer(g.data)});
  }
  *gradients = experts->gradients.data();
  *count = static_cast<uint32_t>(experts->gradients.size());
  return rewireSuccess;
}

rewireResult_t rewireExpertsMoved(rewireExperts_t experts, rewireMoved_t* moved) noexcept {
  const rewire::PostponedCancellation postponed;
  if (const rewireResult_t wrong = Arguments("rewireExpertsMoved")
                                       .NotNull("experts", experts)
                                       .NotNull("moved", moved)
                                       .result();
      wrong != rewireSuccess) {
    return wrong;
  }
  *moved = new rewireMoved{experts->balancer->moved()};
  return rewireSuccess;
}

rewireResult_t rewireMovedFree(rewireMoved_t moved) noexcept {
  const rewire::PostponedCancellation postponed;
  delete moved;
  return rewireSuccess;
}

rewireResult_t rewireExpertsCheck(rewireExperts_t experts) noexcept {
  const rewire::PostponedCancellation postponed;
  if (const rewireResult_t wrong =
          Arguments("rewireExpertsCheck").NotNull("experts", experts).result();
      wrong != rewireSuccess) {
    return wrong;
  }
  const absl::Status checked = experts->balancer->Check();
  return checked.ok() ? rewireSuccess : Fail(checked);
}

rewireResult_t rewireExpertsCounts(rewireExperts_t experts,
                                   rewireExpertsCounts_t* counts) noexcept {
  const rewire::PostponedCancellation postponed;
  if (const rewireResult_t wrong = Arguments("rewireExpertsCounts")
                                       .NotNull("experts", experts)
                                       .Sized("counts", "rewireExpertsCounts_t", counts)
                                       .result();
      wrong != rewireSuccess) {
    return wrong;
  }
  const BalancerCounts now = experts->balancer->counts();
  *counts = {counts->size,   now.rounds,       now.given,       now.received,
             now.given_rows, now.copied_bytes, now.late_rounds, now.copies};
  return rewireSuccess;
}

rewireResult_t rewireExpertsEnd(rewireExperts_t experts) noexcept {
  const rewire::PostponedCancellation postponed;
  if (const rewireResult_t wrong =
          Arguments("rewireExpertsEnd").NotNull("experts", experts).result();
      wrong != rewireSuccess) {
    return wrong;
  }
  delete experts;
  return rewireSuccess;
}

}  // extern "C"
