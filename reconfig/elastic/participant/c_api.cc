// Implements the C interface except for the update boundary (update.cc): checks arguments and lets
// no exception out. See rewire/rewire.h for threads.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "reconfig/base/cancellation.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/settings.h"
#include "reconfig/base/utf8.h"
#include "reconfig/elastic/participant/context.h"
#include "reconfig/elastic/participant/process.h"
#include "reconfig/state/stream/state_memory.h"
#include "reconfig/state/topo/logical_tensor.h"
#include "rewire/rewire.h"

namespace rewire::elastic {
namespace {

constexpr Duration kAttachDeadline = seconds(10);
// The time limit of a reclaim notice by SIGTERM: the usual notice time of clouds.
constexpr Duration kReclaimWithin = seconds(120);

bool ParseVariable(const char* name, uint32_t fallback, uint32_t* out, std::string* error) {
  const char* text = getenv(name);
  if (text == nullptr) {
    *out = fallback;
    return true;
  }
  char* end = nullptr;
  const unsigned long value = strtoul(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || value > 1000000) {
    *error = absl::StrCat(name, "=", text, ": must be a whole number from 0 to 1000000");
    return false;
  }
  *out = static_cast<uint32_t>(value);
  return true;
}

rewireResult_t AttachAlone(rewireContext* context) {
  uint32_t rank = 0;
  uint32_t size = 1;
  std::string error;
  if (!ParseVariable("RANK", 0, &rank, &error) ||
      !ParseVariable("WORLD_SIZE", rank + 1, &size, &error)) {
    return Fail(rewireInvalidArgument, error);
  }
  if (rank >= size) {
    return Fail(rewireInvalidArgument,
                absl::StrCat("RANK=", rank, ": must be below WORLD_SIZE=", size));
  }
  for (uint32_t i = 0; i < size; ++i) context->alone.world.members.push_back({i, 0, ""});
  context->alone.slot = rank;
  return rewireSuccess;
}

// Keeps a detached context for the life of the process; a process makes few.
void Keep(rewireContext* context) {
  static Mutex* const mutex = new Mutex;
  static auto* const kept = new std::vector<rewireContext*>;
  MutexLock lock(mutex);
  kept->push_back(context);
}

}  // namespace

uint32_t MemberOf(const rewireContext& context) {
  return context.participant != nullptr ? context.participant->options().member
                                        : *context.alone.slot;
}

void FillWorld(const WorldView& view, uint32_t member, rewireWorld_t* world) {
  world->epoch = view.world.epoch;
  world->slots = static_cast<uint32_t>(view.world.members.size());
  world->slot = view.slot.value_or(0);
  world->member = member;
  world->joining = view.joining ? 1 : 0;
}

}  // namespace rewire::elastic

using rewire::Arguments;
using rewire::Fail;
using rewire::elastic::ContextArguments;

extern "C" {

const char* rewireLastError(void) noexcept { return rewire::LastError().c_str(); }

rewireResult_t rewireAttach(const rewireAttachOptions_t* options,
                            rewireContext_t* context) noexcept {
  const rewire::PostponedCancellation postponed;
  Arguments arguments("rewireAttach");
  arguments.NotNull("context", context);
  if (context != nullptr) *context = nullptr;
  if (options != nullptr) arguments.Sized("options", "rewireAttachOptions_t", options);
  if (arguments.result() != rewireSuccess) return arguments.result();
  if (options != nullptr && options->sigterm_is_reclaim > 1) {
    return Fail(rewireInvalidArgument,
                absl::StrCat("rewireAttach: options->sigterm_is_reclaim=",
                             options->sigterm_is_reclaim, " must be 0 or 1"));
  }
  if (options != nullptr && options->reserved != 0) {
    return Fail(rewireInvalidArgument,
                absl::StrCat("rewireAttach: options->reserved=", options->reserved, " must be 0"));
  }
  const rewire::Settings& settings = rewire::Settings::Get();
  if (!settings.Error().empty()) return Fail(rewireInvalidArgument, settings.Error());
  auto made = std::make_unique<rewireContext>();
  const bool agent = !settings.socket().empty() && settings.disable() == 0;
  if (!agent) {
    if (const rewireResult_t r = rewire::elastic::AttachAlone(made.get()); r != rewireSuccess)
      return r;
    rewire::elastic::FillWorld(made->alone, rewire::elastic::MemberOf(*made), &made->world);
    *context = made.release();
    return rewireSuccess;
  }
  if (rewire::elastic::InForkedChild()) return rewire::elastic::RefuseForkedChild("rewireAttach");
  if (options != nullptr && options->sigterm_is_reclaim != 0) {
    made->reclaim = std::make_unique<rewire::elastic::ReclaimWatch>([] {
      const auto p = rewire::elastic::CurrentParticipant();
      return p != nullptr && p->Reclaim(rewire::elastic::kReclaimWithin);
    });
  }
  auto participant = rewire::elastic::StartParticipant(true);
  if (!participant.ok()) return Fail(participant.status());
  const auto entered = (*participant)->WaitEntered(rewire::elastic::kAttachDeadline);
  if (!entered.ok()) return Fail(entered.status());
  made->participant = *participant;
  made->boundary = (*participant)->gate();
  rewire::elastic::FillWorld(*entered, rewire::elastic::MemberOf(*made), &made->world);
  *context = made.release();
  return rewireSuccess;
}

rewireResult_t rewireDetach(rewireContext_t context) noexcept {
  const rewire::PostponedCancellation postponed;
  rewire::elastic::ContextCall call;
  const rewireResult_t wrong =
      ContextArguments("rewireDetach").Context(context).Alone(context, &call).result();
  if (wrong != rewireSuccess) return wrong;
  context->reclaim.reset();
  if (context->participant != nullptr &&
      rewire::elastic::CurrentParticipant() == context->participant) {
    context->participant->Leave(rewire::Now() + rewire::seconds(5));
    rewire::elastic::EndParticipant();
    context->participant->FreeDiscarded();
  }
  context->detached = true;
  context->names.clear();
  context->alone = {};
  rewire::elastic::Keep(context);
  return rewireSuccess;
}

rewireResult_t rewireWorld(rewireContext_t context, rewireWorld_t* world) noexcept {
  const rewire::PostponedCancellation postponed;
  const rewireResult_t wrong = ContextArguments("rewireWorld")
                                   .Context(context)
                                   .Sized("world", "rewireWorld_t", world)
                                   .result();
  if (wrong != rewireSuccess) return wrong;
  rewire::elastic::FillWorld(context->View(), rewire::elastic::MemberOf(*context), world);
  return rewireSuccess;
}

rewireResult_t rewireUniqueId(rewireContext_t context, const char* name, void* id128) noexcept {
  const rewire::PostponedCancellation postponed;
  const rewireResult_t wrong = ContextArguments("rewireUniqueId")
                                   .Context(context)
                                   .NotNull("name", name)
                                   .NotNull("id128", id128)
                                   .result();
  if (wrong != rewireSuccess) return wrong;
  if (*name == '\0' || strlen(name) > rewire::state::kMaxNameBytes) {
    return Fail(rewireInvalidArgument, "rewireUniqueId: name must have 1 to 256 bytes");
  }
  if (context->participant == nullptr) {
    return Fail(rewireUnavailable, "rewireUniqueId: there is no agent (REWIRE_SOCKET is not set)");
  }
  if (const rewireResult_t gone = rewire::elastic::StillMember("rewireUniqueId", *context);
      gone != rewireSuccess) {
    return gone;
  }
  const auto id = context->participant->UniqueId(name);
  if (!id.ok()) return Fail(id.status());
  memcpy(id128, id->data(), id->size());
  return rewireSuccess;
}

rewireResult_t rewireCheck(void) noexcept {
  const rewire::PostponedCancellation postponed;
  rewire::elastic::Communicators* communicators = rewire::elastic::GetCommunicators();
  if (communicators == nullptr) return rewireSuccess;
  const std::string why = communicators->LostBecause();
  if (why.empty()) return rewireSuccess;
  return Fail(rewireUnavailable, absl::StrCat("rewireCheck: communicators were lost: ", why));
}

rewireResult_t rewireReclaim(uint32_t within_ms) noexcept {
  const rewire::PostponedCancellation postponed;
  if (within_ms == 0) {
    return Fail(rewireInvalidArgument, "rewireReclaim: within_ms=0: must be at least 1");
  }
  if (rewire::elastic::InForkedChild()) return rewire::elastic::RefuseForkedChild("rewireReclaim");
  const auto participant = rewire::elastic::CurrentParticipant();
  if (participant == nullptr || !participant->Reclaim(rewire::milliseconds(within_ms))) {
    return Fail(rewireUnavailable, "rewireReclaim: this process is not in a world");
  }
  return rewireSuccess;
}

rewireResult_t rewireGraphsReleased(void) noexcept {
  const rewire::PostponedCancellation postponed;
  if (rewire::elastic::InForkedChild()) return rewireSuccess;  // a child has no graphs of its own
  rewire::elastic::Communicators* communicators = rewire::elastic::GetCommunicators();
  if (communicators != nullptr) communicators->ReleaseGraphs();
  return rewireSuccess;
}

rewireResult_t rewireSetParallel(rewireContext_t context, const rewireParallel_t* parallel,
                                 const rewireCallbacks_t* callbacks) noexcept {
  const rewire::PostponedCancellation postponed;
  const rewireResult_t wrong = ContextArguments("rewireSetParallel")
                                   .Context(context)
                                   .NotForked(context)
                                   .Sized("parallel", "rewireParallel_t", parallel)
                                   .Sized("callbacks", "rewireCallbacks_t", callbacks)
                                   .result();
  if (wrong != rewireSuccess) return wrong;
  if (context->update_called) {
    return Fail(rewireInvalidUsage,
                "rewireSetParallel: must be called before the first rewireUpdate()");
  }
  if (parallel->data_parallel != 0) {
    return Fail(rewireInvalidArgument,
                absl::StrCat("rewireSetParallel: data_parallel=", parallel->data_parallel,
                             ": must be 0 (all slots) in this version"));
  }
  if (parallel->zero_stage > 1) {
    return Fail(rewireInvalidArgument,
                absl::StrCat("rewireSetParallel: zero_stage=", parallel->zero_stage,
                             ": must be 0 or 1 in this version"));
  }
  const bool divides = parallel->zero_stage == 1 || callbacks->layout != nullptr;
  if (divides && (callbacks->allocate == nullptr || callbacks->adopt == nullptr ||
                  callbacks->discard == nullptr)) {
    return Fail(rewireInvalidArgument,
                absl::StrCat("rewireSetParallel: ",
                             parallel->zero_stage == 1 ? "zero_stage=1" : "callback layout is set",
                             ": callbacks allocate, adopt and discard must be set"));
  }
  context->parallel_set = true;
  context->zero_stage = parallel->zero_stage;
  context->has_layout = callbacks->layout != nullptr;
  if (context->participant != nullptr) context->participant->registered()->SetCallbacks(*callbacks);
  return rewireSuccess;
}

rewireResult_t rewireRegisterTensor(rewireContext_t context,
                                    const rewireTensor_t* tensor) noexcept {
  const rewire::PostponedCancellation postponed;
  const rewireResult_t wrong = ContextArguments("rewireRegisterTensor")
                                   .Context(context)
                                   .NotForked(context)
                                   .Sized("tensor", "rewireTensor_t", tensor)
                                   .result();
  if (wrong != rewireSuccess) return wrong;
  if (tensor->name == nullptr || *tensor->name == '\0' || strlen(tensor->name) > 1024) {
    return Fail(rewireInvalidArgument, "rewireRegisterTensor: name must have 1 to 1024 bytes");
  }
  if (!rewire::IsUtf8(tensor->name)) {
    return Fail(rewireInvalidArgument,
                absl::StrCat("rewireRegisterTensor: tensor ", absl::CHexEscape(tensor->name),
                             ": name must be valid UTF-8"));
  }
  const std::string what = absl::StrCat("rewireRegisterTensor: tensor ", tensor->name, ": ");
  if (context->update_called) {
    return Fail(rewireInvalidUsage, what + "must be registered before the first rewireUpdate()");
  }
  if (tensor->element_bytes == 0 || tensor->element_bytes > rewire::state::kMaxElementBytes) {
    return Fail(rewireInvalidArgument,
                absl::StrCat(what, "element_bytes=", tensor->element_bytes, ": must be 1 to 2^20"));
  }
  const uint32_t layout = rewire::NumberOf(tensor->layout);
  if (layout > rewireByLayout) {
    return Fail(rewireInvalidArgument, absl::StrCat(what, "layout=", layout, ": must be 0 to ",
                                                    static_cast<int>(rewireByLayout)));
  }
  const uint64_t least = layout == rewireByLayout ? 0 : 1;
  if (tensor->elements < least || tensor->elements > rewire::state::kMaxElements) {
    return Fail(rewireInvalidArgument,
                absl::StrCat(what, "elements=", tensor->elements, ": must be ", least, " to 2^40"));
  }
  if (const uint32_t change = rewire::NumberOf(tensor->change); change > rewireTransient) {
    return Fail(rewireInvalidArgument, absl::StrCat(what, "change=", change, ": must be 0 to ",
                                                    static_cast<int>(rewireTransient)));
  }
  if (const uint32_t memory = rewire::NumberOf(tensor->memory); memory > rewireDevice) {
    return Fail(rewireInvalidArgument, absl::StrCat(what, "memory=", memory, ": must be 0 to ",
                                                    static_cast<int>(rewireDevice)));
  }
  rewire::state::PlacedTensor placed;
  placed.shape = {tensor->name, tensor->elements, tensor->element_bytes,
                  static_cast<rewire::state::Division>(tensor->layout),
                  static_cast<rewire::state::Change>(tensor->change)};
  const rewire::elastic::WorldView view = context->View();
  placed.part = {0, tensor->elements};
  if (layout == rewireSharded) {
    placed.part = rewire::state::ShardOf(
        tensor->elements, static_cast<uint32_t>(view.world.members.size()), view.slot.value_or(0));
  }
  placed.place.kind = static_cast<rewire::state::MemoryKind>(tensor->memory);
  placed.place.data = static_cast<char*>(tensor->data);
  if (tensor->data == nullptr && !placed.part.empty()) {
    return Fail(rewireInvalidArgument,
                what + "data=NULL: must be set, because this slot's part is not empty");
  }
  if (tensor->memory == rewireDevice && context->participant != nullptr) {
    std::string error;
    const rewire::CudaDriver* driver = rewire::CudaDriver::Get(&error);
    if (driver == nullptr) return Fail(rewireInvalidArgument, what + error);
    if (driver->CtxGetCurrent(&placed.place.context) != CUDA_SUCCESS ||
        placed.place.context == nullptr) {
      return Fail(rewireInvalidUsage, what +
                                          "memory=rewireDevice: this thread has no current CUDA "
                                          "context");
    }
  }
  if (!context->names.insert(tensor->name).second) {
    return Fail(rewireInvalidArgument, what + "already registered");
  }
  if (layout == rewireSharded && context->sharded.empty()) context->sharded = tensor->name;
  if (layout == rewireByLayout && context->by_layout.empty()) context->by_layout = tensor->name;
  placed.allocation = rewire::state::AllocationOf(placed.place);
  if (context->participant != nullptr)
    context->participant->registered()->AddTensor(std::move(placed));
  return rewireSuccess;
}

}  // extern "C"
