// The object that a rewireContext_t points to: the participant or, without an agent, a world that
// never changes. ContextArguments checks the arguments of the calls that take one. Owned by the
// program's thread.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>

#include "reconfig/api/arguments.h"
#include "reconfig/elastic/participant/participant.h"
#include "reconfig/elastic/participant/process.h"
#include "reconfig/elastic/participant/reclaim.h"
#include "rewire/rewire.h"

struct rewireContext {
  std::shared_ptr<rewire::elastic::Participant> participant;  // null without an agent
  rewire::elastic::WorldView alone;                           // the world without an agent
  rewireWorld_t world = {};  // after rewireAttach(), or the last update that did not pass at once
  std::unique_ptr<rewire::elastic::ReclaimWatch> reclaim;
  std::set<std::string> names;
  std::string sharded;      // the first sharded tensor; empty: none
  std::string by_layout;    // the first rewireByLayout tensor
  uint32_t zero_stage = 0;  // of rewireSetParallel()
  bool parallel_set = false;
  bool has_layout = false;  // its callback layout is set
  bool update_called = false;
  std::atomic<const void*> caller{nullptr};  // see ContextCall
  std::atomic<const char*> function{""};     // the function that `caller` is inside
  const char* inside = nullptr;      // the program's function that `caller` runs; null: none
  bool detached = false;             // the object is kept, so that a late call is refused
  rewire::elastic::UpdateGate gate;  // without an agent
  rewire::elastic::UpdateGate* boundary = &gate;  // the participant's gate, or `gate`

  [[nodiscard]] rewire::elastic::WorldView View() const {
    return participant != nullptr ? participant->View() : alone;
  }
};

namespace rewire::elastic {

void FillWorld(const WorldView& view, uint32_t member, rewireWorld_t* world);
uint32_t MemberOf(const rewireContext& context);
// Refuses a call in a forked child, and after a detach by another thread.
rewireResult_t StillMember(const char* function, const rewireContext& context);
// Refuses a call in a forked child, whose threads, locks and shared memory are the parent's.
rewireResult_t RefuseForkedChild(const char* function);

// Holds a context for a call that no other thread may make meanwhile. Owned by the calling thread.
class ContextCall {
 public:
  ContextCall() = default;
  ~ContextCall() {
    if (context_ != nullptr) context_->caller.store(nullptr);
  }
  ContextCall(const ContextCall&) = delete;
  ContextCall& operator=(const ContextCall&) = delete;
  // Returns "", or why the call must be refused.
  [[nodiscard]] std::string Begin(rewireContext* context, const char* function);

 private:
  rewireContext* context_ = nullptr;
};

// Checks the arguments of one call, of which the context comes first:
//   ContextArguments("rewireX").Context(context).NotNull("id", id).result();
class ContextArguments : public Arguments {
 public:
  using Arguments::Arguments;

  ContextArguments& Context(const rewireContext* context) {
    NotNull("context", context);
    if (result_ == rewireSuccess && context->detached) {
      result_ = Fail(rewireInvalidUsage, absl::StrCat(function_, ": context has been detached"));
    }
    return *this;
  }
  // The process is the one that attached. A context without an agent has no threads, so a forked
  // child may use such a context.
  ContextArguments& NotForked(const rewireContext* context) {
    if (result_ == rewireSuccess && context->participant != nullptr && InForkedChild()) {
      result_ = RefuseForkedChild(function_);
    }
    return *this;
  }
  // The call is made neither from inside a function of the program that Rewire calls, nor while
  // another thread is inside such a call.
  ContextArguments& Alone(rewireContext* context, ContextCall* call) {
    if (result_ != rewireSuccess) return *this;
    const std::string reason = call->Begin(context, function_);
    if (!reason.empty()) {
      result_ = Fail(rewireInvalidUsage, absl::StrCat(function_, ": ", reason));
    }
    return *this;
  }
};

}  // namespace rewire::elastic
