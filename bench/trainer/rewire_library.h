// Rewire's C interface, found at run time: without an agent the trainer needs no library of Rewire.
// Immutable after loading; thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "rewire/rewire.h"

namespace rewire::trainer {

struct RewireLibrary {
  decltype(&rewireResultString) ResultString;
  decltype(&rewireLastError) LastError;
  decltype(&rewireAttach) Attach;
  decltype(&rewireDetach) Detach;
  decltype(&rewireWorld) World;
  decltype(&rewireUniqueId) UniqueId;
  decltype(&rewireSetParallel) SetParallel;
  decltype(&rewireRegisterTensor) RegisterTensor;
  decltype(&rewireUpdate) Update;
  decltype(&rewireRecover) Recover;

  static absl::StatusOr<RewireLibrary> Load();
};

}  // namespace rewire::trainer
