// Implements the functions rewireFsep*() of rewire/rewire_moe.h (fully sharded experts), which need
// no rewire context. The header has the thread rules.
#include <memory>
#include <string>
#include <vector>

#include "reconfig/api/arguments.h"
#include "reconfig/base/cancellation.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/moe/fsep/schedule.h"
#include "rewire/rewire_moe.h"

struct rewireFsep {
  std::unique_ptr<rewire::moe::fsep::Schedule> schedule;
  uint32_t slots = 0;
  uint32_t devices = 0;
};

using rewire::Arguments;
using rewire::Fail;
using rewire::moe::Placement;
using rewire::moe::fsep::Exchange;
using rewire::moe::fsep::Gradient;
using rewire::moe::fsep::LayerShards;
using rewire::moe::fsep::NcclCalls;
using rewire::moe::fsep::Schedule;
using rewire::moe::fsep::Shape;
using rewire::moe::fsep::SlotMemory;
using rewire::moe::fsep::Visit;

namespace {

// The longest time that rewireFsepPlace() waits for the last step's gradients on the device.
constexpr rewire::Duration kPatience = rewire::seconds(60);

rewireResult_t ResultOf(const absl::Status& status) {
  return status.ok() ? rewireSuccess : Fail(status);
}

void* Pointer(CUdeviceptr p) { return reinterpret_cast<void*>(static_cast<uintptr_t>(p)); }
CUdeviceptr Address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

absl::StatusOr<std::unique_ptr<Schedule>> Open(const rewireFsepOptions_t& o) {
  if (o.gradient_bytes != 2 && o.gradient_bytes != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient_bytes=", o.gradient_bytes, ": must be 2 (bfloat16) or 4 (float)"));
  }
  std::string error;
  const rewire::CudaDriver* cuda = rewire::CudaDriver::Get(&error);
  if (cuda == nullptr) return absl::UnavailableError(error);
  REWIRE_ASSIGN_OR_RETURN(const NcclCalls nccl, NcclCalls::OfProcess());
  const Shape shape{{o.nodes, o.devices_of_node},
                    o.rank,
                    o.experts,
                    o.slots,
                    o.elements,
                    o.weight_bytes,
                    o.gradient_bytes == 2 ? Gradient::kBfloat16 : Gradient::kFloat32};
  std::vector<LayerShards> layers;
  for (uint32_t l = 0; l < o.layers; ++l) {
    layers.push_back({Address(o.weights[l]), Address(o.gradients[l])});
    if (layers.back().weights == 0 || layers.back().gradients == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", l, ": weights and gradients must not be NULL"));
    }
  }
  REWIRE_ASSIGN_OR_RETURN(
      std::unique_ptr<Exchange> exchange,
      Exchange::Create(*cuda, nccl, static_cast<ncclComm_t>(o.comm), shape, o.layers));
  return Schedule::Create(*cuda, std::move(exchange), std::move(layers), o.prefetch, nullptr);
}

// Makes a call whose only argument is a stream.
rewireResult_t OnStream(const char* function, rewireFsep_t fsep, void* stream,
                        absl::Status (Schedule::*call)(CUstream)) {
  const rewireResult_t wrong = Arguments(function).NotNull("fsep", fsep).result();
  if (wrong != rewireSuccess) return wrong;
  return ResultOf((fsep->schedule.get()->*call)(static_cast<CUstream>(stream)));
}

}  // namespace

extern "C" {

rewireResult_t rewireFsepOpen(const rewireFsepOptions_t* o, rewireFsep_t* fsep) noexcept {
  const rewire::PostponedCancellation postponed;
  Arguments arguments("rewireFsepOpen");
  arguments.Sized("options", "rewireFsepOptions_t", o);
  if (arguments.result() == rewireSuccess) {
    arguments.NotNull("options->comm", o->comm)
        .NotNull("options->weights", o->weights)
        .NotNull("options->gradients", o->gradients)
        .NotNull("fsep", fsep);
  }
  if (arguments.result() != rewireSuccess) return arguments.result();
  absl::StatusOr<std::unique_ptr<Schedule>> schedule = Open(*o);
  if (!schedule.ok()) return Fail(schedule.status());
  *fsep = new rewireFsep{*std::move(schedule), o->slots, o->nodes * o->devices_of_node};
  return rewireSuccess;
}

rewireResult_t rewireFsepPlace(rewireFsep_t fsep, uint32_t layer, const uint32_t* slots) noexcept {
  const rewire::PostponedCancellation postponed;
  if (const rewireResult_t wrong =
          Arguments("rewireFsepPlace").NotNull("fsep", fsep).NotNull("slots", slots).result();
      wrong != rewireSuccess) {
    return wrong;
  }
  const size_t count = size_t{fsep->slots} * fsep->devices;
  const Placement placement{fsep->slots, {slots, slots + count}};
  return ResultOf(fsep->schedule->Place(layer, placement, kPatience));
}

rewireResult_t rewireFsepBegin(rewireFsep_t fsep, uint32_t visits, const uint32_t* layers,
                               const uint32_t* leave_gradients, void* stream) noexcept {
  const rewire::PostponedCancellation postponed;
  if (const rewireResult_t wrong = Arguments("rewireFsepBegin")
                                       .NotNull("fsep", fsep)
                                       .NotNull("layers", layers)
                                       .NotNull("leave_gradients", leave_gradients)
                                       .result();
      wrong != rewireSuccess) {
    return wrong;
  }
  std::vector<Visit> list;
  for (uint32_t v = 0; v < visits; ++v) list.push_back({layers[v], leave_gradients[v] != 0});
  return ResultOf(fsep->schedule->Begin(std::move(list), static_cast<CUstream>(stream)));
}

rewireResult_t rewireFsepBeginTokens(rewireFsep_t fsep, void* stream) noexcept {
  const rewire::PostponedCancellation postponed;
  return OnStream("rewireFsepBeginTokens", fsep, stream, &Schedule::BeginTokens);
}

rewireResult_t rewireFsepEndTokens(rewireFsep_t fsep, void* stream) noexcept {
  const rewire::PostponedCancellation postponed;
  return OnStream("rewireFsepEndTokens", fsep, stream, &Schedule::EndTokens);
}

rewireResult_t rewireFsepBeginExperts(rewireFsep_t fsep, void* stream, void** weights,
                                      void** gradients) noexcept {
  const rewire::PostponedCancellation postponed;
  if (const rewireResult_t wrong = Arguments("rewireFsepBeginExperts")
                                       .NotNull("fsep", fsep)
                                       .NotNull("weights", weights)
                                       .NotNull("gradients", gradients)
                                       .result();
      wrong != rewireSuccess) {
    return wrong;
  }
  const absl::StatusOr<SlotMemory> memory =
      fsep->schedule->BeginExperts(static_cast<CUstream>(stream));
  if (!memory.ok()) return Fail(memory.status());
  *weights = Pointer(memory->weights);
  *gradients = Pointer(memory->gradients);
  return rewireSuccess;
}

rewireResult_t rewireFsepEndExperts(rewireFsep_t fsep, void* stream) noexcept {
  const rewire::PostponedCancellation postponed;
  return OnStream("rewireFsepEndExperts", fsep, stream, &Schedule::EndExperts);
}

rewireResult_t rewireFsepFinish(rewireFsep_t fsep, void* stream) noexcept {
  const rewire::PostponedCancellation postponed;
  return OnStream("rewireFsepFinish", fsep, stream, &Schedule::Finish);
}

rewireResult_t rewireFsepClose(rewireFsep_t fsep) noexcept {
  const rewire::PostponedCancellation postponed;
  if (const rewireResult_t wrong = Arguments("rewireFsepClose").NotNull("fsep", fsep).result();
      wrong != rewireSuccess) {
    return wrong;
  }
  delete fsep;
  return rewireSuccess;
}

}  // extern "C"
