#include "bench/trainer/session.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"

namespace rewire::trainer {
namespace {

void* Allocate(void* arg, const char* tensor, uint64_t bytes) {
  return static_cast<TrainingState*>(arg)->NewPart(tensor, bytes);
}
void Adopt(void* arg, const char* tensor, void* data, uint64_t begin, uint64_t end) {
  static_cast<TrainingState*>(arg)->AdoptPart(tensor, data, {begin, end});
}
void Discard(void* arg, const char* tensor, void* data) {
  static_cast<TrainingState*>(arg)->FreePart(tensor, data);
}
int InPlace(void* arg, const char* tensor, uint64_t begin, uint64_t end) {
  return static_cast<TrainingState*>(arg)->ReachPart(tensor, {begin, end}) ? 1 : 0;
}
void OnWorld(void* arg, const rewireWorld_t* world) {
  auto* state = static_cast<TrainingState*>(arg);
  state->slots = static_cast<int>(world->slots);
  state->slot = static_cast<int>(world->slot);
}

int RunUpdate(void* arg) {
  const absl::Status s = (*static_cast<const std::function<absl::Status()>*>(arg))();
  if (s.ok()) return 0;
  fprintf(stderr, "gpt_train: the update failed: %s\n", std::string(s.message()).c_str());
  return 1;
}

rewireTensor_t Tensor(const char* name, uint64_t elements, size_t element_bytes,
                      rewireLayout_t layout, rewireChange_t change, rewireMemory_t memory,
                      void* data) {
  rewireTensor_t t{};
  t.size = sizeof t;
  t.name = name;
  t.elements = elements;
  t.element_bytes = static_cast<uint32_t>(element_bytes);
  t.layout = layout;
  t.change = change;
  t.memory = memory;
  t.data = data;
  return t;
}

}  // namespace

absl::Status RewireSession::Check(const char* call, rewireResult_t result) const {
  if (result == rewireSuccess) return absl::OkStatus();
  const std::string text =
      absl::StrCat(call, ": ", library_.ResultString(result), ": ", library_.LastError());
  if (result == rewireUnavailable) return absl::UnavailableError(text);
  return absl::InternalError(text);
}

absl::StatusOr<std::unique_ptr<RewireSession>> RewireSession::Attach() {
  REWIRE_ASSIGN_OR_RETURN(const RewireLibrary library, RewireLibrary::Load());
  std::unique_ptr<RewireSession> s(new RewireSession(library));
  rewireAttachOptions_t options{};
  options.size = sizeof options;
  options.sigterm_is_reclaim = 1;
  REWIRE_RETURN_IF_ERROR(s->Check("rewireAttach", library.Attach(&options, &s->context_)));
  return s;
}

RewireSession::~RewireSession() {
  if (context_ != nullptr) library_.Detach(context_);
}

absl::StatusOr<rewireWorld_t> RewireSession::World() {
  rewireWorld_t world{};
  world.size = sizeof world;
  REWIRE_RETURN_IF_ERROR(Check("rewireWorld", library_.World(context_, &world)));
  return world;
}

absl::StatusOr<ncclUniqueId> RewireSession::UniqueId(const char* name) {
  ncclUniqueId id;
  REWIRE_RETURN_IF_ERROR(Check("rewireUniqueId", library_.UniqueId(context_, name, &id)));
  return id;
}

absl::Status RewireSession::Register(TrainingState& state) {
  rewireParallel_t parallel{};
  parallel.size = sizeof parallel;
  parallel.zero_stage = state.zero1() ? 1 : 0;
  rewireCallbacks_t callbacks{};
  callbacks.size = sizeof callbacks;
  callbacks.arg = &state;
  callbacks.allocate = Allocate;
  callbacks.adopt = Adopt;
  callbacks.discard = Discard;
  callbacks.on_world = OnWorld;
  callbacks.in_place = InPlace;
  REWIRE_RETURN_IF_ERROR(
      Check("rewireSetParallel", library_.SetParallel(context_, &parallel, &callbacks)));
  const auto add = [&](const rewireTensor_t& t) {
    return Check(t.name, library_.RegisterTensor(context_, &t));
  };
  REWIRE_RETURN_IF_ERROR(add(Tensor("weights", state.elements(), 2, rewireReplicated,
                                    rewireConstant, rewireDevice, state.weights.data())));
  for (auto& [name, t] : state.tensors) {
    REWIRE_RETURN_IF_ERROR(add(Tensor(
        name.c_str(), t.elements, t.element_bytes, t.sharded ? rewireSharded : rewireReplicated,
        t.transient ? rewireTransient : rewireConstant, rewireDevice, t.pointer())));
  }
  REWIRE_RETURN_IF_ERROR(add(Tensor("running_mean", state.running.size(), 8, rewireReplicated,
                                    rewireVolatile, rewireHost, state.running.data())));
  return add(Tensor("progress", kProgressWords, 8, rewireReplicated, rewireVolatile, rewireHost,
                    &state.progress));
}

absl::StatusOr<rewireOutcome_t> RewireSession::Update(const std::function<absl::Status()>& update) {
  rewireOutcome_t outcome{};
  outcome.size = sizeof outcome;
  auto* arg = const_cast<std::function<absl::Status()>*>(&update);
  REWIRE_RETURN_IF_ERROR(
      Check("rewireUpdate", library_.Update(context_, RunUpdate, arg, &outcome)));
  return outcome;
}

absl::StatusOr<rewireOutcome_t> RewireSession::Recover() {
  rewireOutcome_t outcome{};
  outcome.size = sizeof outcome;
  REWIRE_RETURN_IF_ERROR(Check("rewireRecover", library_.Recover(context_, &outcome)));
  return outcome;
}

}  // namespace rewire::trainer
