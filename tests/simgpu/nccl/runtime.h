// The life of the CUDA runtime. NCCL has a copy of the runtime linked in, whose exit handler
// destroys the runtime's state. A thread that is inside NCCL then, or enters NCCL later, crashes
// the process.
#pragma once

namespace simnccl {

// Held by a thread where NCCL calls the runtime. The first one registers the exit handler. Ends the
// process with a text and SIGABRT if the handler has run, and the handler does so if one is held.
// Thread-safe.
class RuntimeUse {
 public:
  RuntimeUse();
  ~RuntimeUse();
  RuntimeUse(const RuntimeUse&) = delete;
  RuntimeUse& operator=(const RuntimeUse&) = delete;
};

}  // namespace simnccl
