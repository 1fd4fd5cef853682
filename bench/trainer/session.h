// This process's attachment to Rewire: its registered state, and the update boundary. Owned by the
// training thread; Rewire's own thread requests memory through it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/trainer/rewire_library.h"
#include "bench/trainer/state.h"

namespace rewire::trainer {

class RewireSession {
 public:
  // Call before any thread is made: SIGTERM becomes a reclaim notice.
  static absl::StatusOr<std::unique_ptr<RewireSession>> Attach();
  ~RewireSession();
  RewireSession(const RewireSession&) = delete;
  RewireSession& operator=(const RewireSession&) = delete;

  absl::StatusOr<rewireWorld_t> World();
  absl::StatusOr<ncclUniqueId> UniqueId(const char* name);
  // Registers every tensor of the state, which must outlive the session.
  absl::Status Register(TrainingState& state);
  // Call once per step. Rewire's outcome or status reports an update that fails.
  absl::StatusOr<rewireOutcome_t> Update(const std::function<absl::Status()>& update);
  absl::StatusOr<rewireOutcome_t> Recover();

 private:
  explicit RewireSession(const RewireLibrary& library) : library_(library) {}
  absl::Status Check(const char* call, rewireResult_t result) const;

  RewireLibrary library_;
  rewireContext_t context_ = nullptr;
};

}  // namespace rewire::trainer
